package ebpf

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/kernel/bpf"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Clients of the second uplink, which has no default route.
var side4, side6 = ap("198.18.0.77:40000"), ap("[2001:db8:5::77]:40000")

// mustDrop runs the program, and fails the test unless the program drops the frame
// unchanged and changes no flow.
func (b *bench) mustDrop(tb testing.TB, name, program string, link int, frame []byte) {
	tb.Helper()
	before := b.ifindexes(tb)
	act, out := b.run(tb, program, frame, skb{Ifindex: uint32(link)}, 0)
	if act != dropped || !bytes.Equal(frame, out) {
		tb.Errorf("%s: %s returns %d, want %d, for\n%x, which becomes\n%x", name, program, act, dropped, frame, out)
	}
	after := b.ifindexes(tb)
	for f, ifindex := range after {
		if was, known := before[f]; !known || was != ifindex {
			tb.Errorf("%s: %s changes the flow %v", name, program, f)
		}
	}
	if len(after) != len(before) {
		tb.Errorf("%s: there were %d flows, and now there are %d", name, len(before), len(after))
	}
}

// ifindexes returns the interface index of each flow's client.
func (b *bench) ifindexes(tb testing.TB) map[[2]netip.AddrPort]uint32 {
	tb.Helper()
	all := map[[2]netip.AddrPort]uint32{}
	for _, f := range b.flows(tb) {
		all[[2]netip.AddrPort{f.Host, f.Client}] = f.Ifindex
	}
	return all
}

// forged is a link, and source addresses that its packets cannot have.
type forged struct {
	name    string
	program string
	link    int
	sources []string
}

// forgeries returns for each link the sources that no packet may have, or none of
// that link.
func (b *bench) forgeries() []forged {
	anywhere := []string{
		"192.0.2.1", "192.0.2.2", "10.9.0.1", "198.18.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.1", "240.0.0.1",
		"255.255.255.255",
		"2001:db8:1::1", "2001:db8:1::2", "fd00:9::1", "2001:db8:5::1", "::", "ff02::1",
	}
	lan, side := []string{"192.0.2.77", "2001:db8:1::77"}, []string{"198.18.0.77", "2001:db8:5::77"}
	web, app := []string{"10.9.0.2", "fd00:9::2"}, []string{"10.9.0.3", "fd00:9::3"}
	join := func(all ...[]string) (joined []string) {
		for _, a := range all {
			joined = append(joined, a...)
		}
		return joined
	}
	return []forged{
		{"uplink", Uplink, b.up, join(anywhere, side, web, app, []string{"203.0.113.9", "2001:db8:ffff::9"})},
		{"other uplink", Uplink, b.up2, join(anywhere, lan, web, app)},
		{"sandbox", Sandbox, b.app, join(anywhere, lan, side, web, []string{"10.9.0.4", "fe80::5"})},
	}
}

// TestForgedSourcesBeginNothing sends first packets with impossible sources to a
// publish and to a virtual service. None of them may create a flow.
func TestForgedSourcesBeginNothing(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, udp := range []bool{false, true} {
		for _, v4 := range []bool{false, true} {
			s := b.served(udp, v4)
			b.hold(t, s)
			host := map[[2]bool]string{{false, true}: "192.0.2.1:8080", {true, true}: "192.0.2.1:5353",
				{false, false}: "[2001:db8:1::1]:8080", {true, false}: "[2001:db8:1::1]:5353"}[[2]bool{udp, v4}]
			for _, f := range b.forgeries() {
				for _, source := range f.sources {
					from := netip.AddrPortFrom(netip.MustParseAddr(source), 40000)
					if from.Addr().Is4() != v4 {
						continue
					}
					for _, to := range []netip.AddrPort{ap(host), s.Frontends[0]} {
						if act, _ := b.run(t, f.program, first(udp, from, to).frame(), skb{Ifindex: uint32(f.link)},
							0); act != dropped && act != untouched {
							t.Errorf("%s via the %s: %s returns %d for %s", source, f.name, f.program, act, to)
						}
					}
				}
			}
			if all := b.flows(t); len(all) != 0 {
				t.Errorf("forged packets created the flows %v", all)
			}
			b.unserve(t, "web")
		}
	}
}

// oneOfEach are first packets of flows to a publish.
var oneOfEach = []packet{
	first(false, client4, ap("192.0.2.1:8080")), first(true, client4, ap("192.0.2.1:5353")),
	first(false, client6, ap("[2001:db8:1::1]:8080")), first(true, client6, ap("[2001:db8:1::1]:5353")),
}

// TestAFlowStaysOnItsLink sends packets of a client's flow via every other link:
// first packets, later ones, resets and FINs.
func TestAFlowStaysOnItsLink(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, served := range []bool{false, true} {
		for _, p := range oneOfEach {
			if served {
				s := b.served(p.udp, p.src.Addr().Is4())
				b.hold(t, s)
				p.dst = s.Frontends[0]
			}
			seen := b.begin(t, p)
			for _, flags := range []uint8{syn, ack, rst, fin | ack} {
				p.flags = flags
				b.mustDrop(t, "the other uplink", Uplink, b.up2, p.frame())
				b.mustDrop(t, "another sandbox", Sandbox, b.app, p.frame())
			}
			back := b.mustMap(t, "answer", Sandbox, b.behind(seen.dst.Addr()), seen.answer().frame())
			if src, dst := ends(back); src != p.dst || dst != p.src {
				t.Errorf("the answer goes from %s to %s", src, dst)
			}
			b.forget(t)
			if served {
				b.unserve(t, "web")
			}
		}
	}
}

// TestAFlowFollowsItsClient moves clients to another uplink with the routing table,
// and to another sandbox's link. The flow moves with the client's next packet.
func TestAFlowFollowsItsClient(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, p := range oneOfEach {
		b.begin(t, p)
		bits := p.src.Addr().BitLen()
		route := &netlink.Route{LinkIndex: b.up2,
			Dst: &net.IPNet{IP: p.src.Addr().AsSlice(), Mask: net.CIDRMask(bits, bits)}}
		b.do(t, func() error { return netlink.RouteAdd(route) })
		b.mustMap(t, "from the other uplink", Uplink, b.up2, p.frame())
		for _, ifindex := range b.ifindexes(t) {
			if ifindex != uint32(b.up2) {
				t.Errorf("the flow's link is %d, want %d", ifindex, b.up2)
			}
		}
		b.mustDrop(t, "from the old uplink", Uplink, b.up, p.frame())
		b.do(t, func() error { return netlink.RouteDel(route) })
		b.forget(t)
	}
	p := first(true, netip.AddrPortFrom(appV4, 40000), ap("192.0.2.1:5353"))
	b.mustMap(t, "from its sandbox", Sandbox, b.app, p.frame())
	if err := b.Sources().SetEndpoint(b.up2, []netip.Addr{appV4}); err != nil {
		t.Fatal(err)
	}
	b.mustMap(t, "from its new link", Sandbox, b.up2, p.frame())
}

// TestLooseSources checks that a link with loose source validation accepts packets with
// a route back via any uplink. A flow stays on its link, and the addresses of
// sandboxes and of the host stay refused.
func TestLooseSources(t *testing.T) {
	b := newBench(t)
	b.opt.LooseSources = true
	b.do(t, func() error { return b.Sources().setUplink(b.up2) })
	b.publishUsual(t)
	for _, p := range oneOfEach {
		b.begin(t, p)
		b.mustMap(t, "via the other uplink", Uplink, b.up2, p.frame())
		for _, ifindex := range b.ifindexes(t) {
			if ifindex != uint32(b.up) {
				t.Errorf("the flow's link is %d, want %d", ifindex, b.up)
			}
		}
		b.forget(t)
		b.mustMap(t, "a first packet via the other uplink", Uplink, b.up2, p.frame())
		b.forget(t)
		for _, source := range []netip.Addr{webV4, hostV4, webV6, hostV6, netip.MustParseAddr("203.0.113.9")} {
			if source.Is4() == p.src.Addr().Is4() {
				forged := p
				forged.src = netip.AddrPortFrom(source, 40000)
				b.mustDrop(t, source.String(), Uplink, b.up2, forged.frame())
			}
		}
	}
}

// TestMultipathSources checks that a client may use each of the uplinks that share
// multipath routes, and no other. The addresses of sandboxes and of the host stay
// refused.
func TestMultipathSources(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	set := func(up, up2 uint32) {
		t.Helper()
		if err := errors.Join(b.Sources().SetMultipath(b.up, up), b.Sources().SetMultipath(b.up2, up2)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range oneOfEach {
		for _, apart := range [][2]uint32{{0, 0}, {7, 0}, {0, 7}, {7, 8}} {
			set(apart[0], apart[1])
			b.mustDrop(t, "via an uplink without the route", Uplink, b.up2, p.frame())
		}
		set(7, 7)
		b.do(t, func() error { return b.Sources().setUplink(b.up2) }) // keeps the multipath setting
		b.mustMap(t, "via the other uplink of the route", Uplink, b.up2, p.frame())
		for _, ifindex := range b.ifindexes(t) {
			if ifindex != uint32(b.up2) {
				t.Errorf("the flow's link is %d, want %d", ifindex, b.up2)
			}
		}
		b.forget(t)
		for _, source := range []netip.Addr{webV4, hostV4, webV6, hostV6, netip.MustParseAddr("203.0.113.9")} {
			if source.Is4() == p.src.Addr().Is4() {
				forged := p
				forged.src = netip.AddrPortFrom(source, 40000)
				b.mustDrop(t, source.String(), Uplink, b.up2, forged.frame())
			}
		}
		b.mustDrop(t, "a sandbox", Sandbox, b.app, p.frame())
	}
}

// TestForgedAnswers sends replies with an endpoint's address from another sandbox and
// from the uplinks. Then the endpoint's address moves to another link.
func TestForgedAnswers(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, p := range oneOfEach {
		answer := b.begin(t, p).answer().frame()
		b.mustDrop(t, "another sandbox", Sandbox, b.app, answer)
		b.mustLeave(t, "an uplink", Uplink, b.up, answer)
		b.mustMap(t, "the endpoint", Sandbox, b.web, answer)
		if err := b.Sources().SetEndpoint(b.up2, []netip.Addr{webV4, webV6}); err != nil {
			t.Fatal(err)
		}
		b.mustMap(t, "the endpoint behind its new link", Sandbox, b.up2, answer)
		if err := b.Sources().forget(Sandbox, b.up2); err != nil {
			t.Fatal(err)
		}
		b.forget(t)
	}
}

// TestForgedErrors sends ICMP errors about a flow via links other than those of its
// client and its endpoint, and via the client's link from impossible sources.
func TestForgedErrors(t *testing.T) {
	b := newBench(t)
	b.routers(t)
	b.publishUsual(t)
	for _, p := range errorCases {
		seen := b.begin(t, p)
		about, request := p.answer().frame(), seen.frame()
		side, own := side4.Addr(), hostV4
		if p.src.Addr().Is6() {
			side, own = side6.Addr(), hostV6
		}
		b.mustLeave(t, "via the other uplink", Uplink, b.up2, icmpError(side, about, 100))
		b.mustLeave(t, "from a sandbox", Sandbox, b.app, icmpError(b.addressOf(p, b.app), about, 100))
		b.mustLeave(t, "from the endpoint", Sandbox, b.web, icmpError(b.addressOf(p, b.web), about, 100))
		b.mustLeave(t, "with the host's address", Uplink, b.up, icmpError(own, about, 100))
		b.mustLeave(t, "with an endpoint's address", Uplink, b.up, icmpError(seen.dst.Addr(), about, 100))
		b.mustLeave(t, "about a request, from another sandbox", Sandbox, b.app,
			icmpError(seen.dst.Addr(), request, 100))
		b.mustLeave(t, "about a request, from an uplink", Uplink, b.up, icmpError(seen.dst.Addr(), request, 100))
		b.mustMap(t, "via the client's link", Uplink, b.up, icmpError(router(p), about, 100))
		b.mustMap(t, "about a request, from the endpoint", Sandbox, b.web, icmpError(seen.dst.Addr(), request, 100))
	}
}

// addressOf returns the address of a sandbox in the packet's family.
func (b *bench) addressOf(p packet, link int) netip.Addr {
	all, _ := b.Sources().Endpoint(link)
	for _, a := range all {
		if a.Is4() == p.src.Addr().Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// TestForgedFragments checks that fragments via another link do not get the ports of
// a datagram's first fragment.
func TestForgedFragments(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, p := range []packet{oneOfEach[1], oneOfEach[3]} {
		p.payload = make([]byte, 100)
		all := p.fragments(64)
		b.mustMap(t, "the first fragment", Uplink, b.up, all[0])
		b.mustLeave(t, "a later fragment via another link", Uplink, b.up2, all[1])
		b.mustMap(t, "a later fragment", Uplink, b.up, all[1])
	}
}

// TestStaleFlowsEndInward checks that every packet of a client that was silent for
// longer than the timeout creates a new flow.
func TestStaleFlowsEndInward(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, p := range oneOfEach {
		b.begin(t, p)
		b.age(t, 2*time.Minute, false)
		b.alter(t, b.flows(t)[0], func(f *bpf.FairleadFlow) { f.Ifindex = uint32(b.up2) })
		b.mustMap(t, "a packet via another link than the stale flow's", Uplink, b.up, p.frame())
		if all := b.flows(t); len(all) != 1 || all[0].Ifindex != uint32(b.up) {
			t.Errorf("the flows are %v, want one with the link %d", all, b.up)
		}
		b.forget(t)
	}
}

// TestFloodOfPublishes sends more SYNs, and more other first segments, than the maps
// can store. An open connection to an endpoint continues.
func TestFloodOfPublishes(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	p := oneOfEach[0]
	seen := b.begin(t, p)
	b.mustMap(t, "SYN and ACK", Sandbox, b.web,
		packet{src: seen.dst, dst: seen.src, flags: syn | ack, seq: 7, ack: 1001}.frame())
	b.mustMap(t, "ACK", Uplink, b.up, packet{src: p.src, dst: p.dst, flags: ack, seq: 1001, ack: 8}.frame())
	for _, flags := range []uint8{syn, ack} {
		for i := range uint16(4 * testFlows) {
			from := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.200"), 1024+i)
			b.uplink(t, packet{src: from, dst: p.dst, flags: flags, ack: 5}.frame())
		}
	}
	data := packet{src: seen.dst, dst: seen.src, flags: ack, seq: 8, ack: 1001, payload: []byte("x")}
	b.mustMap(t, "data from the endpoint", Sandbox, b.web, data.frame())
}

// TestOnlyAnAnsweredClientOpensAFlow checks that a flow stays in the map of half-open
// flows if the client acknowledges a number that the endpoint has not sent.
func TestOnlyAnAnsweredClientOpensAFlow(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	p := oneOfEach[0]
	seen := b.begin(t, p)
	answer := packet{src: seen.dst, dst: seen.src, flags: syn | ack, seq: 7 << 20, ack: 1001}
	guess := packet{src: p.src, dst: p.dst, flags: ack, seq: 1001, ack: 9 << 20}
	open := func() (n int) {
		err := each(b.maps[bpf.FairleadMapFlFlowsTcp], func(bpf.FairleadFlowKey, bpf.FairleadFlow) { n++ })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	b.mustMap(t, "a guess before the answer", Uplink, b.up, guess.frame())
	b.mustMap(t, "SYN and ACK", Sandbox, b.web, answer.frame())
	b.mustMap(t, "a guess", Uplink, b.up, guess.frame())
	if n := open(); n != 0 {
		t.Errorf("%d flows are open before the client has acknowledged the answer", n)
	}
	guess.ack = 7<<20 + 1
	b.mustMap(t, "ACK", Uplink, b.up, guess.frame())
	if n := open(); n != 1 || len(b.flows(t)) != 1 {
		t.Errorf("%d flows are open, want one", n)
	}
}

// TestLinkLocalClients lets clients with the same link-local address behind several
// links dial the host's link-local address. The endpoint could not reply to such an
// address and sees the host's address. Each client gets the replies to its packets.
func TestLinkLocalClients(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	host, client := ap("[fe80::1]:5353"), ap("[fe80::77]:40000")
	for _, link := range []int{b.up, b.up2, b.app} {
		b.do(t, func() error {
			a, err := netlink.ParseAddr("fe80::1/64")
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			return netlink.AddrReplace(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: link}}, a)
		})
	}
	if err := b.Sources().SetAddresses([]netip.Addr{host.Addr()}); err != nil {
		t.Fatal(err)
	}
	p := first(true, client, host)
	links := map[int]string{b.up: Uplink, b.up2: Uplink, b.app: Sandbox}
	seen := map[int]packet{}
	for link, program := range links {
		s := p
		s.src, s.dst = ends(b.mustMap(t, "request", program, link, p.frame()))
		if s.src.Addr() != gateV6 || s.dst.Addr() != webV6 {
			t.Errorf("%s is translated to %s with the source %s, want %s and %s", p.dst, s.dst, s.src, webV6, gateV6)
		}
		seen[link] = s
	}
	for range 2 {
		for link, program := range links {
			back := b.mustMap(t, "answer", Sandbox, b.web, seen[link].answer().frame())
			if src, dst := ends(back); src != host || dst != client {
				t.Errorf("the answer goes from %s to %s, want from %s to %s", src, dst, host, client)
			}
			if src, _ := ends(b.mustMap(t, "request again", program, link, p.frame())); src != seen[link].src {
				t.Errorf("the endpoint sees the client as %s, and saw it as %s", src, seen[link].src)
			}
		}
	}
	if n := len(b.flows(t)); n != len(links) {
		t.Errorf("%d flows, want %d", n, len(links))
	}
	b.forget(t)
	var name bpf.FairleadAliasKey
	var alias bpf.FairleadAlias
	if it := b.maps[bpf.FairleadMapFlAliases].Iterate(); it.Next(&name, &alias) {
		t.Errorf("the alias of %s is left behind", Netip(name.Client))
	}
}
