package ebpf

import (
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/kernel/bpf"
)

// oneDirection is a service of which only the clients' packets are seen: the two real
// servers answer on their own.
type oneDirection struct {
	*bench
	t     *testing.T
	reals [2]netip.AddrPort
}

func newOneDirection(t *testing.T, v4 bool, forward uint8) *oneDirection {
	t.Helper()
	b := newBench(t)
	s := b.remote(false, v4, forward)
	second := s.Reals[0]
	second.At = netip.AddrPortFrom(second.At.Addr().Next(), 0)
	s.Reals, s.Ring = append(s.Reals, second), []uint16{0, 1}
	b.hold(t, s)
	return &oneDirection{bench: b, t: t, reals: [2]netip.AddrPort{s.Reals[0].At, second.At}}
}

// ofFamily are a client and the virtual address.
func ofFamily(v4 bool) (client, frontend netip.AddrPort) {
	if v4 {
		return client4, netip.AddrPortFrom(vipV4, 80)
	}
	return client6, netip.AddrPortFrom(vipV6, 80)
}

// send sends a segment of a client's, and returns the index of the real server that
// gets it.
func (o *oneDirection) send(from netip.AddrPort, flags uint8, seq, ack uint32, payload int) int {
	o.t.Helper()
	_, to := ofFamily(from.Addr().Is4())
	before := o.counted(o.t, "web")
	p := packet{src: from, dst: to, flags: flags, seq: seq, ack: ack, payload: make([]byte, payload)}
	if act, _ := o.uplink(o.t, p.frame()); act != redirect {
		o.t.Fatalf("a segment gets %d, want %d", act, redirect)
	}
	after := o.counted(o.t, "web")
	for i, at := range o.reals {
		if after[at].Packets[Inward] > before[at].Packets[Inward] {
			return i
		}
	}
	o.t.Fatal("no real server gets the segment")
	return -1
}

// open opens a connection whose next sequence number is 1101.
func (o *oneDirection) open(from netip.AddrPort) int {
	o.t.Helper()
	real := o.send(from, syn, 1000, 0, 0)
	o.send(from, ack, 1001, 5001, 0)
	o.send(from, ack|psh, 1001, 5001, 100)
	return real
}

// active returns how many connections count.
func (o *oneDirection) active() (n uint64) {
	o.t.Helper()
	for _, c := range o.counted(o.t, "web") {
		n += c.Active
	}
	return n
}

// silent makes all connections as old as if they had been silent for so long.
func (o *oneDirection) silent(d time.Duration) {
	o.t.Helper()
	for _, name := range []string{bpf.FairleadMapFlFlowsTcp, bpf.FairleadMapFlYoungFlows} {
		m := o.maps[name]
		err := each(m, func(k bpf.FairleadFlowKey, f bpf.FairleadFlow) {
			f.Seen, f.Tick = f.Seen-uint64(d), f.Tick-1
			if err := m.Put(k, f); err != nil {
				o.t.Fatal(err)
			}
		})
		if err != nil {
			o.t.Fatal(err)
		}
	}
}

// eachOneDirection runs a test for both families and both ways to forward.
func eachOneDirection(t *testing.T, fn func(o *oneDirection, client netip.AddrPort)) {
	for name, c := range map[string]struct {
		v4      bool
		forward uint8
	}{"direct over IPv4": {true, ForwardDirect}, "direct over IPv6": {false, ForwardDirect}, "tunnel over IPv4": {true, ForwardTunnel}} {
		t.Run(name, func(t *testing.T) {
			client, _ := ofFamily(c.v4)
			fn(newOneDirection(t, c.v4, c.forward), client)
		})
	}
}

// TestOneWayConnectionsEnd: a connection whose client has closed or reset it counts
// no more, and is forgotten after a while.
func TestOneWayConnectionsEnd(t *testing.T) {
	eachOneDirection(t, func(o *oneDirection, client netip.AddrPort) {
		for i := range uint16(8) {
			o.open(netip.AddrPortFrom(client.Addr(), 40000+i))
		}
		if n := o.active(); n != 8 {
			t.Errorf("%d connections count as open, want 8", n)
		}
		for i := range uint16(4) {
			from := netip.AddrPortFrom(client.Addr(), 40000+i)
			o.send(from, fin|ack, 1101, 5001, 0)
			o.send(from, ack, 1102, 5002, 0)
		}
		o.send(netip.AddrPortFrom(client.Addr(), 40004), rst, 1101, 0, 0)
		o.send(netip.AddrPortFrom(client.Addr(), 40005), rst|ack, 1101, 5001, 0)
		if n := o.active(); n != 2 {
			t.Errorf("of eight connections clients have closed four and reset two, and %d count as open", n)
		}
		if n := len(o.flows(t)); n != 6 {
			t.Errorf("%d flows are remembered, want two that are open and four that are closing", n)
		}
		o.silent(tcpClosing + time.Second)
		for _, f := range o.flows(t) {
			if f.Closing != f.Stale {
				t.Errorf("after two minutes of silence %+v is remembered", f)
			}
		}
		o.silent(tcpOneDirection)
		if n := o.active(); n != 0 {
			t.Errorf("after two hours of silence %d count as open", n)
		}
	})
}

// TestOneWayLoad: the load of a real server is that of its open connections.
func TestOneWayLoad(t *testing.T) {
	o := newOneDirection(t, true, ForwardDirect)
	s := o.balancer.inUse["web"].Service
	s.Scheduling = ByCount
	o.hold(t, s)
	var closed int
	for i := range uint16(12) {
		from := netip.AddrPortFrom(client4.Addr(), 40000+i)
		if o.open(from) == 0 {
			o.send(from, fin|ack, 1101, 5001, 0)
			closed++
		}
	}
	if closed < 10 {
		t.Errorf("a real server whose clients close at once gets %d of 12, want all but one or two", closed)
	}
}

// TestOneWayEndsPushNothingOut: what clients have closed pushes out no open
// connection, however many those are.
func TestOneWayEndsPushNothingOut(t *testing.T) {
	o := newOneDirection(t, true, ForwardDirect)
	real := o.open(client4)
	flood := netip.MustParseAddr("192.0.2.200")
	for i := range uint16(4 * testFlows) {
		from := netip.AddrPortFrom(flood, 1024+i)
		for _, p := range []packet{{flags: syn, seq: 1}, {flags: ack, seq: 2, ack: 1}, {flags: fin | ack, seq: 2, ack: 1}} {
			p.src, p.dst = from, netip.AddrPortFrom(vipV4, 80)
			o.uplink(t, p.frame())
		}
	}
	if now := o.send(client4, ack|psh, 1101, 5001, 10); now != real || o.active() == 0 {
		t.Errorf("the open connection goes to %s, not %s, and %d are open", o.reals[now], o.reals[real], o.active())
	}
}

// TestOneWayHalfClosed: a client that has closed its side reads on for as long as it
// acknowledges.
func TestOneWayHalfClosed(t *testing.T) {
	eachOneDirection(t, func(o *oneDirection, client netip.AddrPort) {
		real := o.open(client)
		o.send(client, fin|ack, 1101, 5001, 0)
		for i := range uint32(4) {
			o.silent(tcpClosing - 10*time.Second)
			if now := o.send(client, ack, 1102, 6000+1000*i, 0); now != real {
				t.Fatalf("an acknowledgement goes to %s, not %s", o.reals[now], o.reals[real])
			}
		}
	})
}

// TestOneWaySYNs: SYNs and forged ends in an open connection change nothing.
func TestOneWaySYNs(t *testing.T) {
	eachOneDirection(t, func(o *oneDirection, client netip.AddrPort) {
		for name, forged := range map[string]packet{
			"SYN": {flags: syn, seq: 77}, "SYN near": {flags: syn, seq: 1101},
			"FIN of the past": {flags: fin | ack, seq: 500, ack: 1}, "FIN of the future": {flags: fin | ack, seq: 1 << 30, ack: 1},
			"RST of the past": {flags: rst, seq: 1100}, "RST of the future": {flags: rst, seq: 1 << 30},
		} {
			o.forget(t)
			real := o.open(client)
			o.send(client, forged.flags, forged.seq, forged.ack, 0)
			for _, seq := range []uint32{0, 1000, 1101, 1 << 31} {
				if now := o.send(client, syn, seq, 0, 0); now != real {
					t.Errorf("%s: a SYN moves the connection", name)
				}
			}
			o.silent(time.Hour)
			if now := o.send(client, ack|psh, 1101, 5001, 10); now != real || o.active() != 1 {
				t.Errorf("%s: data goes to %s, not %s, and %d count as open", name, o.reals[now], o.reals[real], o.active())
			}
		}
	})
}

// TestOneWayPortsUsedAgain: a client that uses its port again after its FIN has a
// connection that counts, and ends as any does; after a reset it has another.
func TestOneWayPortsUsedAgain(t *testing.T) {
	eachOneDirection(t, func(o *oneDirection, client netip.AddrPort) {
		real := o.open(client)
		o.send(client, fin|ack, 1101, 5001, 0)
		o.send(client, ack, 1102, 5002, 0)
		if now := o.send(client, syn, 900000, 0, 0); now != real {
			t.Errorf("a SYN after a FIN goes to %s, not %s, which may challenge it", o.reals[now], o.reals[real])
		}
		o.send(client, ack, 900001, 70001, 0)
		o.send(client, ack|psh, 900001, 70001, 50)
		if n := o.active(); n != 1 {
			t.Errorf("the new connection counts as %d", n)
		}
		o.send(client, fin|ack, 900051, 70001, 0)
		if n := o.active(); n != 0 {
			t.Errorf("after its FIN %d count", n)
		}
		o.send(client, rst, 900052, 0, 0)
		if left := o.flows(t); len(left) != 0 {
			t.Errorf("after a reset %v is left", left)
		}
		if now := o.send(client, syn, 5, 0, 0); now == real {
			t.Error("after a reset the next connection is the old one")
		}
	})
}

// TestOneWayAndDraining: a connection that its client has closed does not keep the
// next one with a real server that takes no more.
func TestOneWayAndDraining(t *testing.T) {
	o := newOneDirection(t, true, ForwardDirect)
	real := o.open(client4)
	o.send(client4, fin|ack, 1101, 5001, 0)
	s := o.balancer.inUse["web"].Service
	s.Reals = append([]Real{}, s.Reals...)
	s.Reals[real].Flags |= RealDraining
	s.Ring = []uint16{uint16(1 - real)}
	o.hold(t, s)
	if now := o.send(client4, ack, 1102, 5002, 0); now != real {
		t.Error("the last acknowledgement goes to another real server")
	}
	if now := o.send(client4, syn, 900000, 0, 0); now == real {
		t.Error("a new connection goes to a real server that is draining")
	}
}
