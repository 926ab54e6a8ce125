package ebpf

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
)

// begin runs a program on the first packet of a flow, and returns the packet as the
// endpoint sees it.
func (b *bench) begin(tb testing.TB, p packet) packet {
	tb.Helper()
	out := b.mustMap(tb, "first packet", Uplink, b.up, p.frame())
	p.src, p.dst = ends(out)
	return p
}

// turn sends one more packet to the endpoint and a reply, and checks that the reply
// comes from the dialled address.
func (b *bench) turn(tb testing.TB, p packet) {
	tb.Helper()
	seen := b.begin(tb, p)
	back := b.mustMap(tb, "answer", Sandbox, b.web, seen.answer().frame())
	if src, dst := ends(back); src != p.dst || dst != p.src {
		tb.Errorf("%s dialled %s, which %s answers to %s", p.src, p.dst, src, dst)
	}
}

func TestAnswerComesFromWhomTheClientDialled(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, c := range []struct {
		udp      bool
		from, to netip.AddrPort
	}{
		{false, client4, ap("192.0.2.1:8080")},
		{false, client6, ap("[2001:db8:1::1]:8080")},
		{true, client4, ap("192.0.2.1:5353")},
		{true, client6, ap("[2001:db8:1::1]:5353")},
		{false, client4, ap("192.0.2.2:9010")},
		{false, client6, ap("[fd00:9::1]:9000")},
	} {
		b.turn(t, first(c.udp, c.from, c.to))
	}
}

// TestRoundTrips checks the same for random clients, host addresses and ports.
func TestRoundTrips(t *testing.T) {
	b := newBench(t)
	b.routers(t)
	b.publish(t, b.mapping(false, anyV4, 1, 65535, 1, 0), b.mapping(true, anyV4, 2, 65535, 1, 0),
		b.mapping(false, anyV6, 10, 65534, 11, 0), b.mapping(true, anyV6, 10, 65535, 10, 0))
	const seed = 4711
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 4000 {
		from, to := client4, []netip.Addr{hostV4, otherV4, gateV4}[r.IntN(3)]
		if r.IntN(2) == 0 {
			from, to = client6, []netip.Addr{hostV6, gateV6}[r.IntN(2)]
		}
		a := from.Addr().AsSlice()
		a[len(a)-1], a[1] = byte(3+r.IntN(250)), a[1]+byte(r.IntN(8)) // none is the host or the broadcast address
		addr, _ := netip.AddrFromSlice(a)
		p := first(r.IntN(2) == 0, netip.AddrPortFrom(addr, uint16(r.IntN(65536))),
			netip.AddrPortFrom(to, uint16(10+r.IntN(65525))))
		b.turn(t, p)
		b.forget(t)
	}
}

func TestOutwardLeavesOtherPackets(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	seen := b.begin(t, first(false, client4, ap("192.0.2.1:8080")))
	answer := seen.answer()
	otherClient, otherPort, otherProto := answer, answer, answer
	otherClient.dst, otherPort.src, otherProto.udp = ap("192.0.2.78:40000"), ap("10.9.0.2:81"), true
	for name, p := range map[string]packet{"another client": otherClient, "another port": otherPort,
		"another protocol": otherProto} {
		b.mustLeave(t, name, Sandbox, b.web, p.frame())
	}
	b.mustLeave(t, "with a VLAN tag", Sandbox, b.web, tagged(answer.frame()))
	for n := range 20 {
		b.mustLeave(t, "cut off", Sandbox, b.web, answer.frame()[:ethernet+20+n])
	}
	answer.payload = bytes.Repeat([]byte("x"), 1461)
	b.mustLeave(t, "larger than the uplink's MTU", Sandbox, b.web, answer.frame())
	answer.payload = answer.payload[:1460]
	b.mustMap(t, "as large as the uplink's MTU", Sandbox, b.web, answer.frame())
}

// TestSandboxAsClient checks that a sandbox's packet to the host's address is translated,
// in a frame that its bridge port marks as another host's. The sandbox's multicast and
// its packets to other addresses are left to the kernel.
func TestSandboxAsClient(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, p := range []packet{
		first(false, netip.AddrPortFrom(appV4, 40000), ap("192.0.2.1:8080")),
		first(true, netip.AddrPortFrom(appV6, 40000), ap("[2001:db8:1::1]:5353")),
	} {
		p.mac = []byte{2, 0, 0, 0, 0, 8}
		out := b.mustMap(t, "from a sandbox", Sandbox, b.app, p.frame())
		seen := p
		seen.src, seen.dst = ends(out)
		back := b.mustMap(t, "answer", Sandbox, b.web, seen.answer().frame())
		if src, dst := ends(back); src != p.dst || dst != p.src {
			t.Errorf("%s dialled %s, which %s answers to %s", p.src, p.dst, src, dst)
		}
	}
	for _, dst := range []string{"10.9.0.255:5353", "224.0.0.251:5353", "255.255.255.255:5353", "192.0.2.78:5353"} {
		p := first(true, netip.AddrPortFrom(appV4, 40000), ap(dst))
		if p.mac = nil; dst != "192.0.2.78:5353" {
			p.mac = []byte{255, 255, 255, 255, 255, 255}
		}
		b.mustLeave(t, dst, Sandbox, b.app, p.frame())
	}
	for _, dst := range []string{"[ff02::fb]:5353", "[2001:db8:2::1]:5353"} {
		b.mustLeave(t, dst, Sandbox, b.app, first(true, netip.AddrPortFrom(appV6, 40000), ap(dst)).frame())
	}
}

// TestOnePortPublishedTwice lets a client dial both publishes of a container port from
// one source port. The endpoint could not distinguish the two connections, so it sees
// an alias for the second.
func TestOnePortPublishedTwice(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, pair := range [][2]packet{
		{first(false, client4, ap("192.0.2.1:8080")), first(false, client4, ap("192.0.2.1:8088"))},
		{first(true, client6, ap("[2001:db8:1::1]:5353")), first(true, client6, ap("[2001:db8:1::1]:5454"))},
		{first(false, client4, ap("192.0.2.1:9001")), first(false, client4, ap("192.0.2.2:9001"))},
	} {
		one, two := b.begin(t, pair[0]), b.begin(t, pair[1])
		if one.src != pair[0].src || two.src.Addr() != one.src.Addr() || two.src.Port() == one.src.Port() {
			t.Errorf("the endpoint sees %s and %s", one.src, two.src)
		}
		for range 2 {
			b.turn(t, pair[1])
			b.turn(t, pair[0])
		}
		if again := b.begin(t, pair[1]); again.src != two.src {
			t.Errorf("the alias changed from %s to %s", two.src, again.src)
		}
	}
	if n := len(b.flows(t)); n != 6 {
		t.Errorf("%d flows, want 6", n)
	}
}

func TestEndpointReachesItself(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, c := range []struct {
		p    packet
		gate netip.Addr
	}{
		{first(false, netip.AddrPortFrom(webV4, 40000), ap("192.0.2.1:8080")), gateV4},
		{first(true, netip.AddrPortFrom(webV6, 40000), ap("[2001:db8:1::1]:5353")), gateV6},
	} {
		seen := c.p
		seen.src, seen.dst = ends(b.mustMap(t, "to itself", Sandbox, b.web, c.p.frame()))
		if seen.src.Addr() != c.gate {
			t.Errorf("the endpoint sees %s, want %s", seen.src, c.gate)
		}
		back := b.mustMap(t, "answer", Sandbox, b.web, seen.answer().frame())
		if src, dst := ends(back); src != c.p.dst || dst != c.p.src {
			t.Errorf("%s dialled %s, which %s answers to %s", c.p.src, c.p.dst, src, dst)
		}
	}
}

// TestAliasIsNotTheHosts checks that replies to a socket of the host are left to the
// kernel, although the socket has the address and port that is also the alias of an
// endpoint that reaches itself.
func TestAliasIsNotTheHosts(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	p := first(true, netip.AddrPortFrom(webV4, 40000), ap("192.0.2.1:5353"))
	p.src, p.dst = ends(b.mustMap(t, "to itself", Sandbox, b.web, p.frame()))
	if p.src.Port() >= 32768 {
		t.Errorf("the alias %s is in the range of local ports", p.src)
	}
	answer := p.answer().frame()
	b.mustMap(t, "before the host dials", Sandbox, b.web, answer)
	var c net.Conn
	b.do(t, func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(p.src), net.UDPAddrFromAddrPort(p.dst))
		return err
	})
	b.mustLeave(t, "while the host dials", Sandbox, b.web, answer)
	c.Close()
	b.mustMap(t, "after the host has closed its socket", Sandbox, b.web, answer)
}

// TestMappingDeleted checks that no packet is translated inward after the mapping is
// deleted, while the last replies are.
func TestMappingDeleted(t *testing.T) {
	b := newBench(t)
	l := b.mapping(true, anyV4, 5353, 5353, 53, 0)
	b.publish(t, l)
	p := first(true, client4, ap("192.0.2.1:5353"))
	b.turn(t, p)
	if err := b.table.Apply([]Change{{Old: &l}}); err != nil {
		t.Fatal(err)
	}
	b.mustLeave(t, "after its mapping was deleted", Uplink, b.up, p.frame())
	seen := p
	seen.dst = ap("10.9.0.2:53")
	b.mustMap(t, "an answer after that", Sandbox, b.web, seen.answer().frame())
}

func TestFragments(t *testing.T) {
	b := newBench(t)
	b.publishUsual(t)
	for _, p := range []packet{first(true, client4, ap("192.0.2.1:5353")),
		first(true, client6, ap("[2001:db8:1::1]:5353"))} {
		p.payload = bytes.Repeat([]byte("fragment"), 20)
		var in []byte
		for _, f := range p.fragments(64) {
			out := b.mustMap(t, "fragment", Uplink, b.up, f)
			in = append(in, out[packetView(out).l4:]...)
		}
		translated := p
		translated.dst = netip.AddrPortFrom(webV4, 53)
		if p.src.Addr().Is6() {
			translated.dst = netip.AddrPortFrom(webV6, 53)
		}
		if !bytes.Equal(in, translated.transport()) {
			t.Errorf("the endpoint reassembles\n%x, want\n%x", in, translated.transport())
		}
		for _, f := range translated.answer().fragments(64) {
			back := b.mustMap(t, "fragment of the answer", Sandbox, b.web, f)
			if src, dst := ends(back); src.Addr() != p.dst.Addr() || dst.Addr() != p.src.Addr() {
				t.Errorf("a fragment of the answer goes from %s to %s, want from %s to %s", src, dst, p.dst, p.src)
			}
		}
	}
}
