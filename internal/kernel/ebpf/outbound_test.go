package ebpf

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"fairlead/internal/kernel/bpf"
	"fairlead/internal/plan"

	"github.com/cilium/ebpf"
)

// withPorts limits the ports of outbound flows to the first n.
func withPorts(tb testing.TB, n uint32) func(*ebpf.CollectionSpec) {
	return func(spec *ebpf.CollectionSpec) {
		tb.Helper()
		if err := spec.Variables[bpf.FairleadVarOutboundCount].Set(n); err != nil {
			tb.Fatal(err)
		}
	}
}

// outbound makes the programs translate what both sandboxes send outside via the first
// uplink.
func (b *bench) outbound(tb testing.TB) {
	tb.Helper()
	b.routers(tb)
	for _, link := range []int{b.web, b.app} {
		v := bpf.FairleadOutboundLink{Ifindex: uint32(b.web)}
		copy(v.Mac[:], hostMAC)
		if err := b.maps[bpf.FairleadMapFlOutboundLinks].Put(uint32(link), v); err != nil {
			tb.Fatal(err)
		}
	}
	up := map[int]netip.Prefix{b.up: netip.MustParsePrefix("192.0.2.1/24")}
	if err := b.Sources().SetOutboundSources(up); err != nil {
		tb.Fatal(err)
	}
}

// leaves runs the program at the sandbox's link and returns the packet as it leaves the
// host. It fails the test unless the program translates the source, decrements the TTL,
// and keeps the checksums valid.
func (b *bench) leaves(tb testing.TB, name string, p packet) packet {
	tb.Helper()
	frame := p.frame()
	act, out := b.run(tb, Sandbox, frame, skb{Ifindex: uint32(b.behind(p.src.Addr()))}, b.summing(tb, frame))
	if act != redirect {
		tb.Fatalf("%s: %s returns %d, want %d", name, Sandbox, act, redirect)
	}
	if ttl := out[ethernet+8]; ttl != 63 {
		tb.Errorf("%s: the TTL is %d, want 63", name, ttl)
	}
	checkChange(tb, name, edit(frame, ethernet+8, 63), out)
	if header, _ := packetView(out).sums(out); !header {
		tb.Errorf("%s: the checksum of the IP header is wrong", name)
	}
	seen := p
	seen.src, seen.dst = ends(out)
	if seen.dst != p.dst || seen.src.Addr() != hostV4 || !plan.IsOutboundPort(seen.src.Port()) {
		tb.Errorf("%s: leaves from %s to %s", name, seen.src, seen.dst)
	}
	return seen
}

// returns sends the answer of the host outside to what it has seen, and checks that the
// sandbox's socket gets it.
func (b *bench) returns(tb testing.TB, name string, sent, seen packet) {
	tb.Helper()
	back := b.mustMap(tb, name, Uplink, b.up, seen.answer().frame())
	if src, dst := ends(back); src != sent.dst || dst != sent.src {
		tb.Errorf("%s: the answer is from %s to %s, want %s and %s", name, src, dst, sent.dst, sent.src)
	}
}

// entries returns the number of reserved ports.
func (b *bench) entries(tb testing.TB) (n int) {
	tb.Helper()
	var name bpf.FairleadOutboundName
	var owner bpf.FairleadOutboundOwner
	it := b.maps[bpf.FairleadMapFlOutbound].Iterate()
	for it.Next(&name, &owner) {
		n++
	}
	if it.Err() != nil {
		tb.Fatal(it.Err())
	}
	return n
}

var webAt, appAt = netip.AddrPortFrom(webV4, 40000), netip.AddrPortFrom(appV4, 40000)

func TestOutbound(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	for _, to := range []string{"192.0.2.77:80", "203.0.113.9:443"} {
		for _, udp := range []bool{false, true} {
			p := first(udp, webAt, ap(to))
			name := fmt.Sprint(to, " udp ", udp)
			seen := b.leaves(t, name, p)
			b.returns(t, name, p, seen)
			if again := b.leaves(t, name, p); again.src != seen.src {
				t.Errorf("%s: the source was %s and becomes %s", name, seen.src, again.src)
			}
			b.mustLeave(t, name+": of another host", Uplink, b.up, packet{src: ap("192.0.2.78:80"), dst: seen.src,
				udp: udp, flags: ack}.frame())
		}
	}
	c, err := b.OutboundCounts()
	if err != nil || c.Flows != 4 || c.Packets != [2]uint64{4, 8} || c.Exhausted != 0 {
		t.Errorf("the counters are %+v, %v", c, err)
	}
}

// TestOutboundLeavesOtherPackets checks what the kernel must route and masquerade.
func TestOutboundLeavesOtherPackets(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	usual := first(false, webAt, client4)
	for name, change := range map[string]func(*packet){
		"to a neighbour that routes":       func(p *packet) { p.mac = []byte{2, 0, 0, 0, 0, 8} },
		"with another sandbox's source":    func(p *packet) { p.src = appAt },
		"with the host's source":           func(p *packet) { p.src = netip.AddrPortFrom(hostV4, 40000) },
		"with a source outside":            func(p *packet) { p.src = ap("203.0.113.1:40000") },
		"of a connection that is open":     func(p *packet) { p.flags = ack },
		"an answer to a connection":        func(p *packet) { p.flags = syn | ack },
		"a reset":                          func(p *packet) { p.flags = rst },
		"SYN and FIN":                      func(p *packet) { p.flags = syn | fin },
		"with IP options":                  func(p *packet) { p.options = true },
		"to a neighbour":                   func(p *packet) { p.dst = ap("10.9.0.3:80") },
		"to the host":                      func(p *packet) { p.dst = ap("192.0.2.1:80") },
		"to the gateway":                   func(p *packet) { p.dst = ap("10.9.0.1:80") },
		"via a link without an address":    func(p *packet) { p.dst = ap("198.18.0.9:80") },
		"to 127.0.0.1":                     func(p *packet) { p.dst = ap("127.0.0.1:80") },
		"to multicast":                     func(p *packet) { p.dst, p.udp = ap("224.0.0.9:80"), true },
		"to the broadcast address outside": func(p *packet) { p.dst, p.udp = ap("192.0.2.255:80"), true },
		"to port 0":                        func(p *packet) { p.dst = ap("192.0.2.77:0") },
		"over IPv6":                        func(p *packet) { p.src, p.dst = ap("[fd00:9::2]:40000"), client6 },
	} {
		p := usual
		change(&p)
		b.mustLeave(t, name, Sandbox, b.web, p.frame())
	}
	b.mustLeave(t, "with an expired TTL", Sandbox, b.web, edit(usual.frame(), ethernet+8, 1))
	large := first(true, webAt, client4)
	large.payload = make([]byte, 1600)
	b.mustLeave(t, "larger than the uplink's MTU", Sandbox, b.web, large.frame())
	for i, f := range large.fragments(800)[1:] {
		b.mustLeave(t, fmt.Sprint("later fragment ", i), Sandbox, b.web, f)
	}
	if n := b.entries(t); n != 0 {
		t.Errorf("%d ports are reserved", n)
	}
}

// TestOutboundFragments sends a fragmented datagram and gets a fragmented answer.
func TestOutboundFragments(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	p := first(true, webAt, client4)
	p.payload = bytes.Repeat([]byte("x"), 40)
	var seen netip.AddrPort
	for i, f := range p.fragments(16) {
		act, out := b.run(t, Sandbox, f, skb{Ifindex: uint32(b.web)}, 0)
		src, _ := ends(out)
		if act != redirect || src.Addr() != hostV4 {
			t.Fatalf("fragment %d: %s returns %d, and the source is %s", i, Sandbox, act, src)
		}
		if i == 0 {
			seen = src
		}
	}
	answer := packet{src: client4, dst: seen, udp: true, payload: p.payload}
	for i, f := range answer.fragments(16) {
		act, out := b.run(t, Uplink, f, skb{Ifindex: uint32(b.up)}, 0)
		if _, dst := ends(out); act != redirect || dst.Addr() != webV4 {
			t.Errorf("fragment %d of the answer: %s returns %d, and the destination is %s", i, Uplink, act, dst)
		}
	}
}

// TestOutboundPortsAreUnique lets two sandboxes open more connections to one destination
// than there are ports, from the same ports. Each port is given once; the kernel gets the
// rest. It gets those, too, for which only a port is left that a socket of the host has, or
// that is published.
func TestOutboundPortsAreUnique(t *testing.T) {
	const ports = 8
	for _, udp := range []bool{false, true} {
		b := newBenchWith(t, forLinks, withPorts(t, ports))
		b.outbound(t)
		used := map[netip.AddrPort]packet{}
		left := 0
		for n := range 40 {
			from := []netip.Addr{webV4, appV4}[n%2]
			p := first(udp, netip.AddrPortFrom(from, uint16(40000+n/2)), client4)
			link := b.behind(from)
			act, out := b.run(t, Sandbox, p.frame(), skb{Ifindex: uint32(link)}, 0)
			if act == untouched {
				left++
				continue
			}
			src, _ := ends(out)
			if other, ok := used[src]; ok {
				t.Errorf("%s has the port of %s outside: %s", p.src, other.src, src)
			}
			used[src] = p
		}
		c, err := b.OutboundCounts()
		if len(used) != ports || left != 40-ports || err != nil || c.Exhausted != uint64(left) {
			t.Errorf("udp %v: %d flows, %d left to the kernel, %d counted, %v", udp, len(used), left, c.Exhausted, err)
		}
		for src, p := range used {
			seen := p
			seen.src = src
			b.returns(t, "an answer", p, seen)
		}
		other := first(udp, webAt, ap("192.0.2.78:80")) // another destination has all ports
		b.leaves(t, "to another destination", other)
	}
}

// TestOutboundAvoidsPortsInUse leaves one port that neither a socket of the host has nor a
// publish.
func TestOutboundAvoidsPortsInUse(t *testing.T) {
	b := newBenchWith(t, forLinks, withPorts(t, 4))
	b.outbound(t)
	const at = plan.FirstOutboundPort
	b.publish(t, b.mapping(false, anyV4, at, at, 80, 0), b.mapping(true, anyV4, at, at, 80, 0))
	b.do(t, func() error {
		for _, port := range []int{at + 1, at + 3} {
			l, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: hostV4.AsSlice(), Port: port})
			if err != nil {
				return err
			}
			t.Cleanup(func() { c.Close() })
		}
		return nil
	})
	for _, udp := range []bool{false, true} {
		for n := range 20 {
			p := first(udp, netip.AddrPortFrom(webV4, uint16(40000+n)), client4)
			act, out := b.run(t, Sandbox, p.frame(), skb{Ifindex: uint32(b.web)}, 0)
			if src, _ := ends(out); act == redirect && src.Port() != at+2 {
				t.Errorf("udp %v: port %d is in use, and %s gets it", udp, src.Port(), p.src)
			}
		}
	}
	if n := b.entries(t); n != 2 {
		t.Errorf("%d ports are reserved, want 1 for each protocol", n)
	}
}

// silence makes all flows idle for longer than they are kept.
func (b *bench) silence(tb testing.TB) {
	tb.Helper()
	for _, f := range b.flows(tb) {
		b.alter(tb, f, func(f *bpf.FairleadFlow) { f.Seen, f.Tick = 0, f.Tick-1 })
	}
}

// TestOutboundFlowsEnd checks that the port of a flow that has ended is free: the flow is
// stale, was pushed out, was closed or reset.
func TestOutboundFlowsEnd(t *testing.T) {
	b := newBenchWith(t, forLinks, withPorts(t, 1))
	b.outbound(t)
	for _, udp := range []bool{false, true} {
		one, two := first(udp, webAt, client4), first(udp, appAt, client4)
		b.leaves(t, "the first", one)
		b.mustLeave(t, "while the port is in use", Sandbox, b.app, two.frame())
		b.silence(t)
		seen := b.leaves(t, "after the first is stale", two)
		b.returns(t, "after the first is stale", two, seen)
		b.mustLeave(t, "the first again", Sandbox, b.web, one.frame())
		b.forget(t)
		if n := b.entries(t); n != 0 {
			t.Errorf("udp %v: %d ports are reserved after the flows were deleted", udp, n)
		}
		b.leaves(t, "the first again", one)
		flow := b.flows(t)[0]
		for _, m := range []string{bpf.FairleadMapFlYoungFlows, bpf.FairleadMapFlFlowsUdp} {
			_ = b.maps[m].Delete(flow.key) // as if another flow had pushed it out
		}
		if err := b.Flows().SweepOutbound(); err != nil || b.entries(t) != 0 {
			t.Errorf("udp %v: %d ports are reserved after the sweep, %v", udp, b.entries(t), err)
		}
	}
	p := first(false, webAt, client4)
	for name, last := range map[string]func(packet){
		"both sides close": func(seen packet) {
			for _, f := range []struct{ flags, from uint8 }{{fin | ack, 1}, {fin | ack, 0}, {ack, 1}} {
				b.segment(t, p, seen, f.from == 1, f.flags)
			}
		},
		"the sandbox resets": func(seen packet) { b.segment(t, p, seen, true, rst) },
	} {
		seen := b.leaves(t, name, p)
		b.segment(t, p, seen, false, syn|ack)
		b.segment(t, p, seen, true, ack)
		if len(b.flows(t)) != 1 {
			t.Fatalf("%s: %d flows", name, len(b.flows(t)))
		}
		last(seen)
		if len(b.flows(t)) != 0 || b.entries(t) != 0 {
			t.Errorf("%s: %d flows and %d ports are left", name, len(b.flows(t)), b.entries(t))
		}
	}
}

// TestLockedNamesStay lets programs and another process hold the lock of a name whose flow has ended. The entry of
// the name stays. The next sweep ends the lock of the other process, which may have been killed, but none of a program.
func TestLockedNamesStay(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	locks := b.maps[bpf.FairleadMapFlLockedNames]
	for holder, want := range map[uint32]int{0: 1, life + 2: 0, life: 1} {
		b.leaves(t, "the first", first(true, webAt, client4))
		f := b.flows(t)[0]
		name, owner := f.entry()
		if err := errors.Join(b.maps[bpf.FairleadMapFlFlowsUdp].Delete(f.key), locks.Put(name, holder)); err != nil {
			t.Fatal(err)
		}
		if err := b.Flows().release(name, owner); err != nil || b.entries(t) != 1 {
			t.Errorf("locked by %d: %d entries are left, %v", holder, b.entries(t), err)
		}
		if err := b.Flows().SweepOutbound(); err != nil || b.entries(t) != want {
			t.Errorf("locked by %d: %d entries are left after the sweep, %v, want %d", holder, b.entries(t), err, want)
		}
		if want == 1 {
			if err := locks.Delete(name); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Flows().SweepOutbound(); err != nil || b.entries(t) != 0 {
			t.Errorf("%d entries are left of a free name, %v", b.entries(t), err)
		}
	}
}

// TestOutboundKeepsPorts closes connections. The hosts outside may remember each for a minute,
// and refuse one that another socket opens from the same port. So others take another port
// as long as there is one. Ended connections take no room, with or without a daemon.
func TestOutboundKeepsPorts(t *testing.T) {
	b := newBenchWith(t, forLinks, withPorts(t, 2), func(s *ebpf.CollectionSpec) {
		s.Maps[bpf.FairleadMapFlOutbound].MaxEntries = 4
	})
	b.outbound(t)
	connect := func(from netip.AddrPort) uint16 {
		p := first(false, from, client4)
		seen := b.leaves(t, from.String(), p)
		if from.Addr() == webV4 {
			b.segment(t, p, seen, false, syn|ack)
			b.segment(t, p, seen, true, rst)
		}
		return seen.src.Port()
	}
	one := connect(webAt)
	other := connect(netip.AddrPortFrom(webV4, 40001))
	if one == other {
		t.Errorf("two sockets have port %d within a minute", one)
	}
	for n := range uint16(20) {
		from, want := webAt, one
		if n%2 == 1 {
			from, want = netip.AddrPortFrom(webV4, 40001), other
		}
		if got := connect(from); got != want {
			t.Errorf("%s had port %d and gets %d", from, want, got)
		}
	}
	for n := range uint16(2) { // all ports are kept
		if got := connect(netip.AddrPortFrom(appV4, 40000+n)); got != one && got != other {
			t.Errorf("a new socket has port %d", got)
		}
	}
	b.mustLeave(t, "while both ports are in use", Sandbox, b.web, first(false, webAt, client4).frame())
}

// TestOutboundMapsPorts opens connections from all ports that a sandbox's kernel chooses
// from. Each has the same port outside as before, and no other one has it.
func TestOutboundMapsPorts(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	seen := map[uint16]uint16{}
	for range 2 {
		for port := plan.FirstHostPort; port <= plan.LastHostPort; port += 37 {
			p := first(false, netip.AddrPortFrom(webV4, uint16(port)), client4)
			out := b.leaves(t, "a connection", p).src.Port()
			if before, ok := seen[out]; ok && before != uint16(port) {
				t.Errorf("ports %d and %d have port %d outside", before, port, out)
			}
			seen[out] = uint16(port)
		}
		b.forget(t)
	}
	if want := (plan.LastHostPort-plan.FirstHostPort)/37 + 1; len(seen) != want {
		t.Errorf("%d connections have %d ports outside", want, len(seen))
	}
}

// TestOutboundUDPIsShort checks how long an exchange may be idle: 30 s after a question and
// its answer, 120 s if there was another packet two seconds later.
func TestOutboundUDPIsShort(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	p := first(true, webAt, client4)
	idle := func(seconds uint64) bool {
		f := b.flows(t)[0]
		b.alter(t, f, func(f *bpf.FairleadFlow) { f.Seen, f.Tick = f.Seen-seconds*1e9, f.Tick-1 })
		return b.flows(t)[0].Stale
	}
	b.returns(t, "the answer", p, b.leaves(t, "the question", p))
	if idle(20) || !idle(15) {
		t.Error("an exchange is not kept for 30 s")
	}
	b.leaves(t, "the question again", p)
	f := b.flows(t)[0]
	b.alter(t, f, func(f *bpf.FairleadFlow) { f.Fin[1], f.Tick = f.Fin[1]-2, f.Tick-1 })
	b.returns(t, "a later answer", p, b.leaves(t, "a later question", p))
	if idle(100) || !idle(25) {
		t.Error("a stream is not kept for 120 s")
	}
}

// TestOutboundRefusesConnections lets the host outside open a connection of its own from the
// address and port of a flow: another program may publish the port.
func TestOutboundRefusesConnections(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	p := first(false, webAt, client4)
	seen := b.leaves(t, "a connection", p)
	own := seen.answer()
	own.flags = syn
	b.mustMap(t, "both sides open it", Uplink, b.up, own.frame())
	b.segment(t, p, seen, false, syn|ack)
	b.mustLeave(t, "a connection of the host outside", Uplink, b.up, own.frame())
}

// segment sends a segment of the sandbox, or of the host outside.
func (b *bench) segment(tb testing.TB, sent, seen packet, fromSandbox bool, flags uint8) {
	tb.Helper()
	p, program, link := seen.answer(), Uplink, b.up
	if fromSandbox {
		p, program, link = sent, Sandbox, b.web
	}
	p.flags, p.seq, p.ack = flags, 1001, 1001
	if flags == ack || !fromSandbox && flags&fin != 0 {
		p.ack = 1002
	}
	if act, _ := b.run(tb, program, p.frame(), skb{Ifindex: uint32(link)}, 0); act != redirect {
		tb.Fatalf("flags %#x: %s returns %d", flags, program, act)
	}
}

// TestOutboundExchangesOfTheKernel checks that answers to datagrams that the kernel has
// delivered to the sandbox are left to the kernel.
func TestOutboundExchangesOfTheKernel(t *testing.T) {
	b := newBenchWith(t, func(p *ebpf.ProgramSpec) bool { return forLinks(p) || only(SandboxOut)(p) })
	b.outbound(t)
	question := first(true, client4, webAt)
	b.mustLeave(t, "the kernel's datagram", SandboxOut, b.web, question.frame())
	b.mustLeave(t, "the answer", Sandbox, b.web, question.answer().frame())
	other := question.answer()
	other.dst = ap("192.0.2.78:40000")
	b.leaves(t, "to another host", other)

	// Other exchanges push the note out, so the next answer opens a flow. It ends after the client's next datagram.
	var noted [12]byte
	if it := b.maps[bpf.FairleadMapFlExchanges].Iterate(); !it.Next(&noted, new(uint64)) {
		t.Fatal("no exchange is noted")
	}
	if err := b.maps[bpf.FairleadMapFlExchanges].Delete(noted); err != nil {
		t.Fatal(err)
	}
	b.leaves(t, "the answer without a note", question.answer())
	b.mustLeave(t, "the kernel's next datagram", SandboxOut, b.web, question.frame())
	for _, f := range b.flows(t) {
		b.alter(t, f, func(f *bpf.FairleadFlow) { f.Tick -= 1024 })
	}
	b.mustLeave(t, "the answer a second later", Sandbox, b.web, question.answer().frame())
}

// TestOutboundForgedExchange: a neighbour that forges a datagram of the host outside on the bridge
// does not end an exchange that the host outside has answered.
func TestOutboundForgedExchange(t *testing.T) {
	b := newBenchWith(t, func(p *ebpf.ProgramSpec) bool { return forLinks(p) || only(SandboxOut)(p) })
	b.outbound(t)
	p := first(true, webAt, client4)
	seen := b.leaves(t, "a question", p)
	b.returns(t, "the answer", p, seen)
	b.mustLeave(t, "a forged answer on the bridge", SandboxOut, b.web, p.answer().frame())
	for _, f := range b.flows(t) {
		b.alter(t, f, func(f *bpf.FairleadFlow) { f.Tick -= 1024 })
	}
	b.returns(t, "the answer to the next question", p, b.leaves(t, "the next question", p))
}

// TestOutboundAnswersNeedTheirLink sends forged answers: from a sandbox, and on an uplink
// without a route to the host outside.
func TestOutboundAnswersNeedTheirLink(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	p := first(true, webAt, client4)
	seen := b.leaves(t, "a question", p)
	forged := seen.answer().frame()
	b.mustLeave(t, "from a sandbox", Sandbox, b.app, forged)
	if act, _ := b.run(t, Uplink, forged, skb{Ifindex: uint32(b.up2)}, 0); act != drop {
		t.Errorf("an answer on another uplink: %s returns %d, want %d", Uplink, act, drop)
	}
	b.returns(t, "the answer", p, seen)
	// Another sandbox cannot send in the flow's name.
	if act, _ := b.run(t, Sandbox, p.frame(), skb{Ifindex: uint32(b.app)}, 0); act != drop {
		t.Errorf("a spoofed datagram: %s returns %d, want %d", Sandbox, act, drop)
	}
}

// TestOutboundFollowsItsRoute takes the address and the route of the uplink away.
func TestOutboundFollowsItsRoute(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	p := first(true, webAt, client4)
	b.leaves(t, "a datagram", p)
	later := func() {
		for _, f := range b.flows(t) {
			b.alter(t, f, func(f *bpf.FairleadFlow) { f.Tick -= 1024 })
		}
	}
	later()
	b.leaves(t, "a datagram a second later", p)
	if err := b.Sources().SetOutboundSources(nil); err != nil {
		t.Fatal(err)
	}
	later()
	b.mustLeave(t, "without an address", Sandbox, b.web, p.frame())
	if len(b.flows(t)) != 0 || b.entries(t) != 0 {
		t.Errorf("%d flows and %d ports are left", len(b.flows(t)), b.entries(t))
	}
}

// TestOutboundWithoutEntry takes away the entry by which answers find a flow: it is missing, or names another sandbox.
// Answers are left to the kernel. A second later, the sandbox's packet opens another flow, and its answer comes. The
// kernel gets what may open none.
func TestOutboundWithoutEntry(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	entries := b.maps[bpf.FairleadMapFlOutbound]
	for _, udp := range []bool{false, true} {
		for _, taken := range []bool{false, true} {
			p := first(udp, webAt, client4)
			seen := b.leaves(t, "a first packet", p)
			name, owner := b.flows(t)[0].entry()
			err := entries.Delete(name)
			if taken {
				owner.Endpoint = word(appV4)
				err = entries.Put(name, owner)
			}
			if err != nil {
				t.Fatal(err)
			}
			b.mustLeave(t, "an answer without an entry", Uplink, b.up, seen.answer().frame())
			b.alter(t, b.flows(t)[0], func(f *bpf.FairleadFlow) { f.Tick -= 1024 })
			again := b.leaves(t, "the packet a second later", p)
			b.returns(t, "its answer", p, again)
			b.forget(t)
		}
	}
	p := first(false, webAt, client4)
	seen := b.leaves(t, "a connection", p)
	b.segment(t, p, seen, false, syn|ack)
	name, _ := b.flows(t)[0].entry()
	if err := entries.Delete(name); err != nil {
		t.Fatal(err)
	}
	b.alter(t, b.flows(t)[0], func(f *bpf.FairleadFlow) { f.Tick -= 1024 })
	p.flags, p.seq, p.ack = ack, 1001, 1002
	b.mustLeave(t, "a packet of an open connection", Sandbox, b.web, p.frame())
	if n := len(b.flows(t)); n != 0 {
		t.Errorf("%d flows are left", n)
	}
}

// TestOutboundLeavesRoom lets a sandbox open as many connections as it can to a host outside that accepts all. Each takes
// it one packet. It pushes out none of the idle connections to a published port: the kernel gets what is more than the
// share of outbound flows.
func TestOutboundLeavesRoom(t *testing.T) {
	share := uint32(0)
	b := newBenchWith(t, forLinks, func(s *ebpf.CollectionSpec) {
		whole, err := loadSpec(1)
		if err != nil {
			t.Fatal(err)
		}
		share = uint32(uint64(testFlows) * uint64(whole.Maps[bpf.FairleadMapFlOutbound].MaxEntries) /
			uint64(whole.Maps[bpf.FairleadMapFlFlowsTcp].MaxEntries))
		s.Maps[bpf.FairleadMapFlOutbound].MaxEntries = share
	})
	b.outbound(t)
	b.publishUsual(t)
	const clients = 100
	for n := range uint16(clients) {
		call := first(false, netip.AddrPortFrom(client4.Addr(), 20000+n), ap("192.0.2.1:8080"))
		answer := b.begin(t, call).answer()
		answer.flags, answer.seq, answer.ack = syn|ack, 7, 1001
		b.mustMap(t, "an answer", Sandbox, b.web, answer.frame())
		call.flags, call.seq, call.ack = ack, 1001, 8
		b.mustMap(t, "an acknowledgement", Uplink, b.up, call.frame())
	}
	opened := 0
	for n := range uint16(2 * testFlows) {
		p := first(false, netip.AddrPortFrom(appV4, 20000+n), ap("192.0.2.78:443"))
		act, out := b.run(t, Sandbox, p.frame(), skb{Ifindex: uint32(b.app)}, 0)
		if act == untouched {
			continue
		}
		seen := p
		seen.src, seen.dst = ends(out)
		accepts := seen.answer()
		accepts.flags, accepts.seq, accepts.ack = syn|ack, 7, 1001
		b.mustMap(t, "SYN and ACK", Uplink, b.up, accepts.frame())
		opened++
	}
	outbound, published := 0, 0
	for _, f := range b.flows(t) {
		if f.Outbound {
			outbound++
		} else {
			published++
		}
	}
	if published != clients || outbound != opened || outbound != int(share) {
		t.Errorf("%d connections to the published port are left of %d, and %d of %d outbound ones; want %d",
			published, clients, outbound, opened, share)
	}
}

// TestOutboundErrors checks that ICMP errors about outbound flows are translated in both
// directions, and that a packet that is too large for the uplink gets one.
func TestOutboundErrors(t *testing.T) {
	b := newBench(t)
	b.outbound(t)
	for _, udp := range []bool{false, true} {
		p := first(udp, webAt, ap("203.0.113.9:443"))
		seen := b.leaves(t, "a question", p)
		for _, from := range []netip.Addr{routerV4, p.dst.Addr()} {
			out := b.mustMap(t, "error about a question", Uplink, b.up, icmpError(from, seen.frame(), 100))
			v := packetView(out)
			if src, to := v.addresses(out); src != from || to != webV4 {
				t.Errorf("the error is from %s to %s, want %s to %s", src, to, from, webV4)
			}
			if src, dst := v.quote.ends(out); src != p.src || dst != p.dst {
				t.Errorf("the error quotes %s to %s, want %s to %s", src, dst, p.src, p.dst)
			}
		}
		forged := seen
		forged.dst = ap("203.0.113.10:443")
		b.mustLeave(t, "an error about another packet", Uplink, b.up, icmpError(routerV4, forged.frame(), 100))

		answer := seen.answer()
		back := answer
		back.src, back.dst = ends(b.mustMap(t, "an answer", Uplink, b.up, answer.frame()))
		out := b.mustMap(t, "error about an answer", Sandbox, b.web, icmpError(webV4, back.frame(), 100))
		v := packetView(out)
		if from, to := v.addresses(out); from != hostV4 || to != p.dst.Addr() {
			t.Errorf("the error about an answer is from %s to %s", from, to)
		}
		if src, dst := v.quote.ends(out); src != answer.src || dst != answer.dst {
			t.Errorf("the error quotes %s to %s, want %s to %s", src, dst, answer.src, answer.dst)
		}

		large := p
		large.payload, large.flags, large.ack = make([]byte, 1600), ack, 1
		act, out := b.run(t, Sandbox, large.frame(), skb{Ifindex: uint32(b.web)}, 0)
		v = packetView(out)
		if act != redirect || v.quote == nil {
			t.Fatalf("a large packet: %s returns %d", Sandbox, act)
		}
		if src, dst := v.quote.ends(out); src != large.src || dst != large.dst {
			t.Errorf("the error about a large packet quotes %s to %s", src, dst)
		}
	}
}
