package ebpf

import (
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/kernel/bpf"

	"github.com/google/go-cmp/cmp"
)

// The virtual addresses, which no interface has, and those of a remote real server.
var (
	vipV4, vipV6 = netip.MustParseAddr("203.0.113.80"), netip.MustParseAddr("2001:db8:80::80")
	farV4, farV6 = netip.MustParseAddr("192.0.2.50"), netip.MustParseAddr("2001:db8:1::50")
)

// served returns a service on port 80 with round robin over the real servers web and
// app, which use port 8000.
func (b *bench) served(udp, v4 bool) Service {
	s := Service{Name: "web", UDP: udp, Scheduling: ByTurn, Ring: []uint16{0, 1}}
	vip, web, app, gate := vipV6, webV6, appV6, gateV6
	if v4 {
		vip, web, app, gate = vipV4, webV4, appV4, gateV4
	}
	s.Frontends = []netip.AddrPort{netip.AddrPortFrom(vip, 80)}
	for i, a := range []netip.Addr{web, app} {
		s.Reals = append(s.Reals, Real{At: netip.AddrPortFrom(a, 8000), Weight: 1, Seen: gate,
			Ifindex: uint32([]int{b.web, b.app}[i])})
	}
	return s
}

// hold sets the service in the table, and ends the flows that this removes.
func (b *bench) hold(tb testing.TB, s Service) {
	tb.Helper()
	var gone Gone
	if err := b.balancer.Set(s, &gone); err != nil {
		tb.Fatal(err)
	}
	b.end(tb, &gone)
}

func (b *bench) end(tb testing.TB, gone *Gone) {
	tb.Helper()
	if err := b.balancer.WriteServed(); err != nil {
		tb.Fatal(err)
	}
	ended, err := b.Flows().Ended(gone)
	if err != nil {
		tb.Fatal(err)
	}
	if err := b.Flows().Forget(ended); err != nil {
		tb.Fatal(err)
	}
}

func (b *bench) unserve(tb testing.TB, name string) {
	tb.Helper()
	var gone Gone
	if err := b.balancer.Del(name, &gone); err != nil {
		tb.Fatal(err)
	}
	b.end(tb, &gone)
}

// counted returns the counters of a service's real servers.
func (b *bench) counted(tb testing.TB, name string) map[netip.AddrPort]RealCounts {
	tb.Helper()
	all, err := b.Balancer().RealCounts(b.Flows())
	if err != nil {
		tb.Fatal(err)
	}
	return all[name]
}

// eachSort runs a test for both protocols and families.
func eachSort(t *testing.T, fn func(udp, v4 bool, client netip.AddrPort)) {
	for _, udp := range []bool{false, true} {
		fn(udp, true, client4)
		fn(udp, false, client6)
	}
}

func TestServed(t *testing.T) {
	b := newBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		s := b.served(udp, v4)
		b.hold(t, s)
		seen := map[netip.AddrPort]int{}
		for i := range uint16(4) {
			from := netip.AddrPortFrom(client.Addr(), 40000+i)
			call := first(udp, from, s.Frontends[0])
			src, dst := ends(b.mustMap(t, "a call", Uplink, b.up, call.frame()))
			if src != from {
				t.Errorf("the real server sees the client %s, want %s", src, from)
			}
			seen[dst]++
			if _, again := ends(b.mustMap(t, "the call again", Uplink, b.up, call.frame())); again != dst {
				t.Errorf("the flow's second packet goes to %s, want %s", again, dst)
			}
			answer := packet{src: dst, dst: from, udp: udp, flags: syn | ack, payload: call.payload}
			src, dst = ends(b.mustMap(t, "an answer", Sandbox, b.behind(dst.Addr()), answer.frame()))
			if src != s.Frontends[0] || dst != from {
				t.Errorf("the answer goes from %s to %s, want from %s to %s", src, dst, s.Frontends[0], from)
			}
		}
		if len(seen) != 2 || seen[s.Reals[0].At] != 2 || seen[s.Reals[1].At] != 2 {
			t.Errorf("the real servers have %v flows, want two each", seen)
		}
		for at, c := range b.counted(t, "web") {
			if c.Active != 2 || c.Flows != 2 || c.Packets != [2]uint64{4, 2} {
				t.Errorf("the counters of %s are %+v", at, c)
			}
			if c.Retries != 2 && !udp {
				t.Errorf("%d SYNs to %s count as repeated, want 2", c.Retries, at)
			}
		}
		b.unserve(t, "web")
		if left := b.flows(t); len(left) != 0 {
			t.Errorf("after the service was deleted, the flows %v are left", left)
		}
		b.mustLeave(t, "after the service was deleted", Uplink, b.up, first(udp, client, s.Frontends[0]).frame())
	})
}

// TestServedElsewhere checks masquerading for a remote real server, whose replies
// arrive at an uplink.
func TestServedElsewhere(t *testing.T) {
	b := newBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		s := b.served(udp, v4)
		far, seen := farV6, hostV6
		if v4 {
			far, seen = farV4, hostV4
		}
		s.Ring, s.Reals = []uint16{0}, []Real{{At: netip.AddrPortFrom(far, 8000), Weight: 1, Seen: seen,
			Ifindex: uint32(b.up), Flags: RealRemote | RealMasquerade}}
		b.hold(t, s)
		src, dst := ends(b.mustSendOn(t, "a call", first(udp, client, s.Frontends[0]).frame()))
		if src.Addr() != seen || src.Port() < 1024 || src.Port() >= 32768 || dst != s.Reals[0].At {
			t.Errorf("the call goes from %s to %s, want from %s and a port below 32768 to %s",
				src, dst, seen, s.Reals[0].At)
		}
		answer := packet{src: dst, dst: src, udp: udp, flags: syn | ack}
		src, dst = ends(b.mustMap(t, "an answer", Uplink, b.up, answer.frame()))
		if src != s.Frontends[0] || dst != client {
			t.Errorf("the answer goes from %s to %s, want from %s to %s", src, dst, s.Frontends[0], client)
		}
		b.unserve(t, "web")
	})
}

// TestServedStays checks that a flow keeps its real server when the service changes,
// and gets another one when its real server is removed.
func TestServedStays(t *testing.T) {
	b := newBench(t)
	s := b.served(false, true)
	b.hold(t, s)
	call := first(false, client4, s.Frontends[0])
	_, dst := ends(b.mustMap(t, "a call", Uplink, b.up, call.frame()))
	has := slices.IndexFunc(s.Reals, func(r Real) bool { return r.At == dst })
	other := uint16(1 - has)
	for name, change := range map[string]func(*Service){
		"not in the ring": func(s *Service) { s.Ring = []uint16{other} },
		"draining":        func(s *Service) { s.Reals[has].Flags, s.Ring = RealDraining, []uint16{other} },
		"no real server":  func(s *Service) { s.Ring = nil },
		"hash scheduling": func(s *Service) { s.Scheduling, s.Ring = ByFlow, []uint16{other, other, other} },
	} {
		changed := s
		changed.Reals = slices.Clone(s.Reals)
		change(&changed)
		b.hold(t, changed)
		if _, now := ends(b.mustMap(t, name, Uplink, b.up, call.frame())); now != dst {
			t.Errorf("%s: the flow moved from %s to %s", name, dst, now)
		}
	}
	one := s
	one.Reals, one.Ring = []Real{s.Reals[other]}, []uint16{0}
	b.hold(t, one)
	if _, now := ends(b.mustMap(t, "real server removed", Uplink, b.up, call.frame())); now != s.Reals[other].At {
		t.Errorf("after its real server was removed, the flow goes to %s, want %s", now, s.Reals[other].At)
	}
}

// TestServedKeeps checks persistence: all flows of a client's address go to the same
// real server.
func TestServedKeeps(t *testing.T) {
	b := newBench(t)
	s := b.served(true, true)
	s.Persistence = 60
	b.hold(t, s)
	for _, client := range []string{"192.0.2.77", "192.0.2.78"} {
		seen := map[netip.AddrPort]bool{}
		for port := range uint16(6) {
			from := netip.AddrPortFrom(netip.MustParseAddr(client), 40000+port)
			_, dst := ends(b.mustMap(t, "a call", Uplink, b.up, first(true, from, s.Frontends[0]).frame()))
			seen[dst] = true
		}
		if len(seen) != 1 {
			t.Errorf("the flows of %s go to %v, want one real server", client, seen)
		}
	}
}

// TestServedByLoad checks that each flow goes to the real server with the fewest flows
// for its weight.
func TestServedByLoad(t *testing.T) {
	b := newBench(t)
	s := b.served(true, true)
	s.Scheduling, s.Reals[0].Weight = ByLoad, 3
	b.hold(t, s)
	seen := map[netip.AddrPort]int{}
	for port := range uint16(12) {
		from := netip.AddrPortFrom(client4.Addr(), 40000+port)
		_, dst := ends(b.mustMap(t, "a call", Uplink, b.up, first(true, from, s.Frontends[0]).frame()))
		seen[dst]++
	}
	if seen[s.Reals[0].At] != 9 {
		t.Errorf("with the weights 3 and 1, the real servers have %v flows, want 9 and 3", seen)
	}
}

// TestNoRealServer checks that the client of a service without a real server gets a
// valid reset or ICMP error.
func TestNoRealServer(t *testing.T) {
	b := newBench(t)
	eachSort(t, func(udp, v4 bool, client netip.AddrPort) {
		s := b.served(udp, v4)
		s.Ring = nil
		b.hold(t, s)
		call := first(udp, client, s.Frontends[0]).frame()
		if udp {
			b.mustReport(t, "a call without a real server", call, portUnreachable, 0)
			return
		}
		act, out := b.uplink(t, call)
		if act != redirect {
			t.Fatalf("a call without a real server: the program returns %d, want %d", act, redirect)
		}
		v := packetView(out)
		header, transport := v.sums(out)
		src, dst := ends(out)
		if !header || !transport || src != s.Frontends[0] || dst != client || out[v.l4+13] != rst|ack ||
			be(out[v.l4+10:]) != 1001 {
			t.Errorf("the reset goes from %s to %s, its checksums are valid: %v, %v\n%x",
				src, dst, header, transport, out)
		}
	})
}

func TestSignals(t *testing.T) {
	b := newBench(t)
	s := b.served(false, true)
	s.Ring = []uint16{0}
	b.hold(t, s)
	call := first(false, client4, s.Frontends[0])
	b.mustMap(t, "a call", Uplink, b.up, call.frame())
	refusal := packet{src: s.Reals[0].At, dst: client4, flags: rst | ack, ack: 1001}
	b.mustMap(t, "a refusal", Sandbox, b.web, refusal.frame())
	if c := b.counted(t, "web")[s.Reals[0].At]; c.Refusals != 1 || c.Resets != 0 || c.Active != 0 {
		t.Errorf("a refusal is counted as %+v", c)
	}
	b.mustMap(t, "another call", Uplink, b.up, call.frame())
	b.mustMap(t, "an answer", Sandbox, b.web,
		packet{src: s.Reals[0].At, dst: client4, flags: syn | ack, seq: 7, ack: 1001}.frame())
	b.mustMap(t, "an acknowledgement", Uplink, b.up,
		packet{src: client4, dst: s.Frontends[0], flags: ack, seq: 1001, ack: 8}.frame())
	b.mustMap(t, "a reset", Sandbox, b.web, packet{src: s.Reals[0].At, dst: client4, flags: rst, seq: 8}.frame())
	if c := b.counted(t, "web")[s.Reals[0].At]; c.Refusals != 1 || c.Resets != 1 || c.Active != 0 {
		t.Errorf("a reset is counted as %+v", c)
	}
}

// TestFlood sends more SYNs than the maps can store. Open connections continue.
func TestFlood(t *testing.T) {
	b := newBench(t)
	s := b.served(false, true)
	b.hold(t, s)
	open := map[netip.AddrPort]netip.AddrPort{}
	for i := range uint16(32) {
		from := netip.AddrPortFrom(client4.Addr(), 40000+i)
		_, dst := ends(b.mustMap(t, "a call", Uplink, b.up, first(false, from, s.Frontends[0]).frame()))
		b.mustMap(t, "an answer", Sandbox, b.behind(dst.Addr()),
			packet{src: dst, dst: from, flags: syn | ack, seq: 7, ack: 1001}.frame())
		b.mustMap(t, "an acknowledgement", Uplink, b.up,
			packet{src: from, dst: s.Frontends[0], flags: ack, seq: 1001, ack: 8}.frame())
		open[from] = dst
	}
	for i := range uint16(4 * testFlows) {
		flood := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.200"), 1024+i)
		b.uplink(t, first(false, flood, s.Frontends[0]).frame())
	}
	for from, dst := range open {
		_, now := ends(b.mustMap(t, "data", Uplink, b.up,
			packet{src: from, dst: s.Frontends[0], flags: ack, seq: 1001, ack: 8, payload: []byte("x")}.frame()))
		if now != dst {
			t.Errorf("the connection of %s moved from %s to %s", from, dst, now)
		}
		src, _ := ends(b.mustMap(t, "an answer", Sandbox, b.behind(dst.Addr()),
			packet{src: dst, dst: from, flags: ack, seq: 8, ack: 1002}.frame()))
		if src != s.Frontends[0] {
			t.Errorf("an answer to %s comes from %s, want from %s", from, src, s.Frontends[0])
		}
	}
}

// TestAdoptServices checks that the next process reads the services from the maps.
func TestAdoptServices(t *testing.T) {
	b := newBench(t)
	s := b.served(false, true)
	s.Frontends = append(s.Frontends, netip.AddrPortFrom(vipV4, 443), netip.AddrPortFrom(vipV4, 81))
	s.Scheduling, s.Scheduler, s.Persistence, s.Forward = ByClient, 3, 7, ForwardTunnel
	for range 2000 {
		s.Ring = append(s.Ring, 1, 0, 0)
	}
	b.hold(t, s)
	call := first(false, client4, s.Frontends[0])
	b.mustMap(t, "a call", Uplink, b.up, call.frame())
	next, err := openBalancer(b.maps)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	if diff := cmp.Diff([]Service{s}, next.Services(), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("the next process reads other services (-want +got):\n%s", diff)
	}
	var gone Gone
	if err := next.Set(s, &gone); err != nil || gone.Any() || !next.AllIntact() {
		t.Errorf("set the same service again: %v, removes %v", err, gone)
	}
	if len(b.flows(t)) != 1 {
		t.Errorf("the flows are %v, want one", b.flows(t))
	}
	if err := b.maps[bpf.FairleadMapFlFrontends].Delete(mustKey(next.inUse["web"], 1)); err != nil {
		t.Fatal(err)
	}
	if next.Intact("web") {
		t.Error("the service counts as intact although a frontend is missing")
	}
}

func mustKey(h *inUse, i int) any {
	key, _ := h.frontend(i, h.Frontends[i])
	return key
}
