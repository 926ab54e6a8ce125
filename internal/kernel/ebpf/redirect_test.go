package ebpf

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// know adds the MAC address of a neighbour behind the uplink to the neighbour table.
func (b *bench) know(tb testing.TB, addr netip.Addr, mac net.HardwareAddr) {
	tb.Helper()
	b.do(tb, func() error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: b.up, IP: addr.AsSlice(), HardwareAddr: mac,
			State: netlink.NUD_PERMANENT})
	})
}

// macs returns the two MAC addresses of the frame that carries the answer to a packet.
// They are the sandbox's if the program leaves it to the kernel to set them.
func (b *bench) macs(tb testing.TB, seen packet) []byte {
	tb.Helper()
	act, out := b.run(tb, Sandbox, seen.answer().frame(), skb{Ifindex: uint32(b.web)}, 0)
	b.keepPaths(tb)
	if act != redirect {
		tb.Fatalf("the answer to %s is not translated: %d", seen.src, act)
	}
	return out[:12]
}

// TestAnswersAreAddressedAsTheNeighbourIsKnown sends two answers to each client. The
// kernel sets the MAC addresses of the first, and the program those of the second.
func TestAnswersAreAddressedAsTheNeighbourIsKnown(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for i, c := range []struct{ from, to netip.AddrPort }{
		{client4, ap("192.0.2.1:8080")},
		{client6, ap("[2001:db8:1::1]:8080")},
	} {
		mac := net.HardwareAddr{2, 0, 0, 0, 7, byte(i)}
		b.know(t, c.from.Addr(), mac)
		seen := b.begin(t, first(false, c.from, c.to))
		sandboxs := seen.answer().frame()[:12]
		if got := b.macs(t, seen); !bytes.Equal(got, sandboxs) {
			t.Errorf("%s: the first answer has the addresses %x, want the sandbox's %x", c.from, got, sandboxs)
		}
		if got, want := b.macs(t, seen), append(bytes.Clone(mac), hostMAC...); !bytes.Equal(got, want) {
			t.Errorf("%s: the second answer has the addresses %x, want %x", c.from, got, want)
		}
		moved := net.HardwareAddr{2, 0, 0, 0, 8, byte(i)}
		b.know(t, c.from.Addr(), moved)
		b.forgetPaths(t)
		b.macs(t, seen)
		if got, want := b.macs(t, seen), append(bytes.Clone(moved), hostMAC...); !bytes.Equal(got, want) {
			t.Errorf("%s: after the neighbour's address changed, answers have the addresses %x, want %x", c.from, got,
				want)
		}
	}
}

// TestUnknownNeighbours checks that the program leaves frames for an unknown neighbour
// to the kernel, which resolves the MAC address.
func TestUnknownNeighbours(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	seen := b.begin(t, first(true, client4, ap("192.0.2.1:5353")))
	for range 3 {
		if got, want := b.macs(t, seen), seen.answer().frame()[:12]; !bytes.Equal(got, want) {
			t.Errorf("the answer has the addresses %x, want the sandbox's %x", got, want)
		}
	}
}
