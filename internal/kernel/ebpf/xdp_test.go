package ebpf

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/kernel/bpf"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// The verdicts of XDP.
const (
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

// farMAC is the MAC address of remote real servers.
var farMAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x50}

// fast runs the fast path on a frame that the first uplink receives.
func (b *bench) fast(tb testing.TB, frame []byte) (act uint32, out []byte) {
	tb.Helper()
	opt := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: b.driver(frame)}
	b.do(tb, func() (err error) {
		act, err = b.programs[XDP].Run(&opt)
		return err
	})
	return act, opt.DataOut
}

// xdpMD is the driver's metadata of a frame: struct xdp_md of linux/bpf.h.
type xdpMD struct{ Data, End, Meta, Ifindex, Queue, Egress uint32 }

// driver returns the metadata that the uplink's driver would give for a frame.
func (b *bench) driver(frame []byte) xdpMD {
	return xdpMD{End: uint32(len(frame)), Ifindex: uint32(b.up)}
}

// forDriversToo selects the programs for links and for their drivers.
func forDriversToo(prog *ebpf.ProgramSpec) bool { return forLinks(prog) || forDrivers(prog) }

// fastBench returns a bench whose uplink has the fast path, and whose neighbour table
// contains the remote real servers.
func fastBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	b.fastOn(t, b.up)
	b.do(t, func() error {
		var errs []error
		for _, a := range []netip.Addr{farV4, farV6} {
			errs = append(errs, netlink.NeighSet(&netlink.Neigh{LinkIndex: b.up, State: netlink.NUD_PERMANENT,
				IP: a.AsSlice(), HardwareAddr: farMAC}))
		}
		return errors.Join(errs...)
	})
	return b
}

func (b *bench) fastOn(tb testing.TB, ifindex int) {
	tb.Helper()
	if err := b.maps[bpf.FairleadMapFlXdpLinks].Put(uint32(ifindex),
		bpf.FairleadXdpLink{Mac: [6]uint8(hostMAC)}); err != nil {
		tb.Fatal(err)
	}
}

// TestFast checks that the fast path passes packets on while the next hop is unknown,
// and that it then forwards and counts packets exactly as tc does.
func TestFast(t *testing.T) {
	b := fastBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		for _, c := range []struct {
			forward uint8
			gue     uint16
		}{{ForwardDirect, 0}, {ForwardTunnel, 0}, {ForwardTunnel, gue}} {
			s := b.remote(udp, v4, c.forward)
			s.GUE = c.gue
			b.hold(t, s)
			call := first(udp, client, s.Frontends[0])
			call.payload = make([]byte, 40)
			frame := call.frame()
			b.forgetPaths(t)
			if act, out := b.fast(t, frame); act != xdpPass || !bytes.Equal(out, frame) {
				t.Errorf("unknown next hop: the fast path returns %d, want %d and the frame unchanged", act, xdpPass)
			}
			if act, _ := b.uplink(t, frame); act != redirect {
				t.Errorf("a packet that was passed on: tc returns %d, want %d", act, redirect)
			}
			b.keepPaths(t)
			tc, out := b.uplink(t, frame)
			act, fast := b.fast(t, frame)
			if tc != redirect || act != xdpTX {
				t.Errorf("tc returns %d, the fast path %d, want %d and %d", tc, act, redirect, xdpTX)
			}
			if v4 && c.forward == ForwardTunnel { // the outer header's ID and checksum differ
				if header, _ := packetView(fast).sums(fast); !header {
					t.Errorf("the checksum of the outer header is wrong")
				}
				for _, at := range []int{4, 5, 10, 11} {
					out[ethernet+at] = fast[ethernet+at]
				}
			}
			if !bytes.Equal(out, fast) {
				t.Errorf("tc sends\n%x, the fast path\n%x", out, fast)
			}
			if c := b.counted(t, "web")[s.Reals[0].At]; c.Packets[0] != 3 || c.Bytes[0] != 3*uint64(len(frame)) ||
				c.Flows != 1 || c.Active != 1 {
				t.Errorf("the counters are %+v, want 3 packets of one active flow", c)
			}
			b.unserve(t, "web")
		}
	})
	if n, err := b.XDPPackets(); err != nil || n != 12 {
		t.Errorf("the fast path has forwarded %d packets (%v), want 12", n, err)
	}
}

// forgetPaths empties the cached next hops.
func (b *bench) forgetPaths(tb testing.TB) {
	tb.Helper()
	b.eachDirection(tb, func(h *bpf.FairleadNextHop) { *h = bpf.FairleadNextHop{} })
}

// keepPaths makes the cached next hops valid for an hour. Usually they are valid for
// one second, which may be too short for a test.
func (b *bench) keepPaths(tb testing.TB) {
	tb.Helper()
	b.eachDirection(tb, func(h *bpf.FairleadNextHop) { h.Found += uint64(time.Hour) })
}

// eachDirection changes each cached next hop.
func (b *bench) eachDirection(tb testing.TB, change func(*bpf.FairleadNextHop)) {
	tb.Helper()
	m := b.maps[bpf.FairleadMapFlNextHops]
	for slot := range m.MaxEntries() {
		var hops []bpf.FairleadNextHop // one for each CPU
		if err := m.Lookup(slot, &hops); err != nil {
			tb.Fatal(err)
		}
		known := false
		for i := range hops {
			if hops[i].Found != 0 {
				known = true
				change(&hops[i])
			}
		}
		if !known {
			continue
		}
		if err := m.Put(slot, hops); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestFastPassesOn checks that the fast path passes on all packets but plain ones, and
// creates no flow for them.
func TestFastPassesOn(t *testing.T) {
	b := fastBench(t)
	s := b.remote(true, true, ForwardDirect)
	b.hold(t, s)
	call := first(true, client4, s.Frontends[0])
	b.uplink(t, call.frame())
	b.keepPaths(t)
	if act, _ := b.fast(t, call.frame()); act != xdpTX {
		t.Fatalf("a plain packet: the program returns %d, want %d", act, xdpTX)
	}
	other, options, large, loop, else80 := call, call, call, call, call
	other.mac, options.options, large.payload = net.HardwareAddr{2, 0, 0, 0, 0, 8}, true, make([]byte, 1500)
	loop.src, else80.dst = ap("127.0.0.1:40000"), netip.AddrPortFrom(vipV4, 81)
	unsummed := call.frame()
	pseudo := ^sumOf(append(append(append([]byte{}, unsummed[ethernet+12:ethernet+20]...), 0, protoUDP),
		unsummed[ethernet+24], unsummed[ethernet+25]))
	unsummed[ethernet+26], unsummed[ethernet+27] = byte(pseudo>>8), byte(pseudo)
	for name, frame := range map[string][]byte{
		"with an expired TTL": atItsEnd(call.frame()), "for another host": other.frame(),
		"with options": options.frame(), "too large": large.frame(), "with a VLAN tag": tagged(call.frame()),
		"from loopback": loop.frame(), "of no service": else80.frame(), "a first fragment": call.fragments(8)[0],
		"a later fragment": call.fragments(8)[1],
		"cut off":          call.frame()[:ethernet+24], "with a checksum to come": unsummed,
	} {
		if act, out := b.fast(t, frame); act != xdpPass || !bytes.Equal(out, frame) {
			t.Errorf("%s: the program returns %d, want %d and the frame unchanged", name, act, xdpPass)
		}
	}
	if n := len(b.flows(t)); n != 1 {
		t.Errorf("there are %d flows, want 1", n)
	}
	b.publish(t, b.mapping(true, netip.IPv4Unspecified(), 80, 80, 53, 0))
	if act, _ := b.fast(t, call.frame()); act != xdpPass {
		t.Errorf("a published port: the program returns %d, want %d", act, xdpPass)
	}
	b.hold(t, b.served(false, true))
	if act, _ := b.fast(t, first(false, client4, netip.AddrPortFrom(vipV4, 80)).frame()); act != xdpPass {
		t.Errorf("a service with NAT forwarding: the program returns %d, want %d", act, xdpPass)
	}
}

// sumOf returns the Internet checksum of RFC 1071.
func sumOf(b []byte) uint16 {
	var sum uint32
	for at := 0; at+1 < len(b); at += 2 {
		sum += uint32(be(b[at:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// TestFastGoesByAnother checks that the fast path forwards a packet via another link
// than it came from only if the other link has the fast path too.
func TestFastGoesByAnother(t *testing.T) {
	b := fastBench(t)
	s := b.remote(true, true, ForwardDirect)
	s.Reals[0].At, s.Reals[0].Ifindex = netip.AddrPortFrom(netip.MustParseAddr("10.9.0.77"), 0), uint32(b.web)
	b.do(t, func() error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: b.web, State: netlink.NUD_PERMANENT,
			IP: s.Reals[0].At.Addr().AsSlice(), HardwareAddr: farMAC})
	})
	b.hold(t, s)
	frame := first(true, client4, s.Frontends[0]).frame()
	b.uplink(t, frame)
	b.keepPaths(t)
	if act, _ := b.fast(t, frame); act != xdpPass {
		t.Errorf("via a link without the fast path: the program returns %d, want %d", act, xdpPass)
	}
	b.fastOn(t, b.web)
	if act, _ := b.fast(t, frame); act != xdpRedirect {
		t.Errorf("via a link with the fast path: the program returns %d, want %d", act, xdpRedirect)
	}
}
