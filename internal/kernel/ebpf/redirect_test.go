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

// detours gives the host a route to the client via its first uplink, and a request that
// arrived on the second one, for which the source check is loose.
func (b *bench) detours(tb testing.TB, p packet) packet {
	tb.Helper()
	b.mustMap(tb, "a request via the other uplink", Uplink, b.up2, p.frame())
	seen := p
	for _, f := range b.flows(tb) {
		if f.Client == p.src {
			seen.dst = f.Endpoint
		}
	}
	return seen
}

// TestLooseAnswersTakeTheRouteBack lets requests arrive on an uplink without a route to
// the client, where the source check is loose. The answers leave via the uplink that has
// the route, addressed to the client's hardware address there.
func TestLooseAnswersTakeTheRouteBack(t *testing.T) {
	b := newBench(t)
	b.opt.LooseSources = true
	b.do(t, func() error { return b.Sources().setUplink(b.up2) })
	b.publishUsual(t)
	for i, p := range oneOfEach {
		mac := net.HardwareAddr{2, 0, 0, 0, 7, byte(i)}
		b.know(t, p.src.Addr(), mac)
		b.forgetPaths(t)
		seen := b.detours(t, p)
		b.macs(t, seen)
		if got, want := b.macs(t, seen), append(bytes.Clone(mac), hostMAC...); !bytes.Equal(got, want) {
			t.Errorf("%s: the answer has the addresses %x, want %x", p.src, got, want)
		}
		b.forget(t)
	}
}

// TestAnswersFitTheirLink sends answers to a client whose requests arrive on another link
// than the one via which the answers leave. The MTU of the latter decides.
func TestAnswersFitTheirLink(t *testing.T) {
	b := newBench(t)
	b.opt.LooseSources = true
	b.do(t, func() error { return b.Sources().setUplink(b.up2) })
	b.publishUsual(t)
	mtu := func(link, mtu int) {
		b.do(t, func() error {
			return netlink.LinkSetMTU(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: link}}, mtu)
		})
	}
	for _, v4 := range []bool{true, false} {
		s := b.served(true, v4)
		b.hold(t, s)
		p := oneOfEach[3]
		if v4 {
			p = oneOfEach[1]
		}
		for _, to := range []netip.AddrPort{p.dst, s.Frontends[0]} {
			for _, answered := range []int{0, 1, 2} {
				p.dst = to
				mtu(b.up, 1500)
				seen := b.detours(t, p)
				link := b.behind(seen.dst.Addr())
				for range answered {
					b.mustMap(t, "a short answer", Sandbox, link, seen.answer().frame())
				}
				seen.payload = bytes.Repeat([]byte("x"), 1400)
				mtu(b.up, 1300)
				b.mustLeave(t, "larger than the MTU of the link via which it leaves", Sandbox, link, seen.answer().frame())
				mtu(b.up, 1500)
				mtu(b.up2, 1300)
				b.mustMap(t, "larger than the MTU of the other link", Sandbox, link, seen.answer().frame())
				mtu(b.up2, 1500)
				b.forget(t)
			}
		}
		b.unserve(t, "web")
	}
}
