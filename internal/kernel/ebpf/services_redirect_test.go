package ebpf

import (
	"bytes"
	"net/netip"
	"testing"
)

// dropped is the return value with which a program drops a packet (TC_ACT_SHOT).
const dropped = 2

// TestNoRouteToARealServer checks that packets for a real server without a route are
// dropped and counted as drops. With direct forwarding they still have the virtual
// address, and the kernel would route them to that.
func TestNoRouteToARealServer(t *testing.T) {
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
					t.Errorf("a packet without a route: the program returns %d, want %d", act, dropped)
				}
			}
			if c := b.counted(t, "web")[at]; c.Drops[Inward] != 2 {
				t.Errorf("direct %v: %d packets count as dropped, want 2", direct, c.Drops[Inward])
			}
			b.unserve(t, "web")
		}
	})
}

// aged returns the frame after one more hop.
func aged(frame []byte) []byte {
	frame = bytes.Clone(frame)
	if frame[ethernet]>>4 == 6 {
		frame[ethernet+7]--
		return frame
	}
	frame[ethernet+8]--
	return resummed(frame)
}

// mustSendOn is mustMap at an uplink for a packet that is forwarded to another host.
func (b *bench) mustSendOn(tb testing.TB, name string, frame []byte) []byte {
	tb.Helper()
	act, out := b.run(tb, Uplink, frame, skb{Ifindex: uint32(b.up)}, b.summing(tb, frame))
	if act != redirect {
		tb.Fatalf("%s: the program returns %d, want %d", name, act, redirect)
	}
	checkChange(tb, name, aged(frame), out)
	return out
}

// TestHops checks that each packet for a remote real server loses one hop, and that
// the sender of a packet whose TTL expires gets an error.
func TestHops(t *testing.T) {
	b := newBench(t)
	for _, forward := range []uint8{ForwardNAT, ForwardDirect, ForwardTunnel} {
		eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
			s := b.remote(udp, v4, forward)
			b.hold(t, s)
			frame := first(udp, client, s.Frontends[0]).frame()
			for left := 64; left > 1; left-- {
				act, out := b.uplink(t, frame)
				if act != redirect {
					t.Errorf("forward %d, TTL %d: the program returns %d, want %d", forward, left, act, redirect)
				}
				if header, _ := packetView(out).sums(out); !header {
					t.Errorf("forward %d, new TTL %d: the checksum of a header is wrong", forward, left-1)
				}
				frame = aged(frame)
			}
			b.mustReport(t, "with an expired TTL", frame, timeExceeded, 0)
			b.unserve(t, "web")
		})
	}
}
