package steer

import (
	"net/netip"
	"testing"
)

// dropped is what a program says of a packet that goes nowhere (TC_ACT_SHOT).
const dropped = 2

// TestNoWayToARealServer: what is for one that no route leads to is lost, and
// counted so. With direct forwarding it still has the virtual address, by which
// the kernel would look for a way.
func TestNoWayToARealServer(t *testing.T) {
	b := newBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		for _, direct := range []bool{false, true} {
			s := b.served(udp, v4)
			at, seen := netip.MustParseAddrPort("[2001:db8:ffff::1]:8000"), hostV6
			if v4 {
				at, seen = netip.MustParseAddrPort("198.51.100.1:8000"), hostV4
			}
			s.Ring = []uint16{0}
			if direct {
				s.Forward = ForwardDirect
			}
			s.Reals = []Real{{At: at, Weight: 1, Seen: seen, Ifindex: uint32(b.up), Flags: RealRemote}}
			b.hold(t, s)
			for range 2 {
				if act, _ := b.uplink(t, first(udp, client, s.Frontends[0]).frame()); act != dropped {
					t.Errorf("a packet for nowhere gets %d, want %d", act, dropped)
				}
			}
			if c := b.counted(t, "web")[at]; c.Drops[Inward] != 2 {
				t.Errorf("direct %v: %d packets count as lost, want 2", direct, c.Drops[Inward])
			}
			b.unserve(t, "web")
		}
	})
}
