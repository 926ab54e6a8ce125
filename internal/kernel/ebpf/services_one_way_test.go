package ebpf

import (
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/kernel/bpf"
)

// oneDirection is a service of which the programs see only the clients' packets: its
// two real servers reply directly to the clients.
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

// ofFamily returns a client and the virtual address.
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
		o.t.Fatalf("a segment: the program returns %d, want %d", act, redirect)
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

// silent sets the time of each connection's last packet back by the given silence.
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

// eachOneDirection runs a test for direct forwarding over both families and for a
// tunnel over IPv4.
func eachOneDirection(t *testing.T, fn func(o *oneDirection, client netip.AddrPort)) {
	for name, c := range map[string]struct {
		v4      bool
		forward uint8
	}{"direct over IPv4": {true, ForwardDirect}, "direct over IPv6": {false, ForwardDirect},
		"tunnel over IPv4": {true, ForwardTunnel}} {
		t.Run(name, func(t *testing.T) {
			client, _ := ofFamily(c.v4)
			fn(newOneDirection(t, c.v4, c.forward), client)
		})
	}
}

// TestOneWayConnectionsEnd checks that a connection that its client has closed or
// reset does not count as open, and that its flow is stale after two minutes.
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
			t.Errorf("%d connections count as open, want 2: clients have closed four of eight and reset two", n)
		}
		if n := len(o.flows(t)); n != 6 {
			t.Errorf("there are %d flows, want two open and four closing ones", n)
		}
		o.silent(tcpClosing + time.Second)
		for _, f := range o.flows(t) {
			if f.Closing != f.Stale {
				t.Errorf("after two minutes of silence the flow %+v is stale: %v, want %v", f, f.Stale, f.Closing)
			}
		}
		o.silent(tcpOneDirection)
		if n := o.active(); n != 0 {
			t.Errorf("after two hours of silence %d connections count as open", n)
		}
	})
}

// TestOneWayLoad checks that only open connections count as a real server's load.
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
		t.Errorf("a real server whose clients close at once gets %d of 12 connections, want all but one or two", closed)
	}
}

// TestOneWayEndsPushNothingOut checks that closed connections, however many, do not
// evict an open one from the maps.
func TestOneWayEndsPushNothingOut(t *testing.T) {
	o := newOneDirection(t, true, ForwardDirect)
	real := o.open(client4)
	flood := netip.MustParseAddr("192.0.2.200")
	for i := range uint16(4 * testFlows) {
		from := netip.AddrPortFrom(flood, 1024+i)
		for _, p := range []packet{{flags: syn, seq: 1}, {flags: ack, seq: 2, ack: 1},
			{flags: fin | ack, seq: 2, ack: 1}} {
			p.src, p.dst = from, netip.AddrPortFrom(vipV4, 80)
			o.uplink(t, p.frame())
		}
	}
	if now := o.send(client4, ack|psh, 1101, 5001, 10); now != real || o.active() == 0 {
		t.Errorf("the open connection goes to %s, want %s, and %d connections count as open",
			o.reals[now], o.reals[real], o.active())
	}
}

// TestOneWayHalfClosed checks that a client that has closed its side keeps its real
// server for as long as it sends acknowledgements.
func TestOneWayHalfClosed(t *testing.T) {
	eachOneDirection(t, func(o *oneDirection, client netip.AddrPort) {
		real := o.open(client)
		o.send(client, fin|ack, 1101, 5001, 0)
		for i := range uint32(4) {
			o.silent(tcpClosing - 10*time.Second)
			if now := o.send(client, ack, 1102, 6000+1000*i, 0); now != real {
				t.Fatalf("an acknowledgement goes to %s, want %s", o.reals[now], o.reals[real])
			}
		}
	})
}

// TestOneWaySYNs checks that SYNs and forged FINs and resets do not change an open
// connection.
func TestOneWaySYNs(t *testing.T) {
	eachOneDirection(t, func(o *oneDirection, client netip.AddrPort) {
		for name, forged := range map[string]packet{
			"SYN": {flags: syn, seq: 77}, "SYN with the next number": {flags: syn, seq: 1101},
			"FIN with an old number": {flags: fin | ack, seq: 500, ack: 1},
			"FIN out of the window":  {flags: fin | ack, seq: 1 << 30, ack: 1},
			"RST with an old number": {flags: rst, seq: 1100}, "RST out of the window": {flags: rst, seq: 1 << 30},
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
				t.Errorf("%s: data goes to %s, want %s, and %d connections count as open", name,
					o.reals[now], o.reals[real], o.active())
			}
		}
	})
}

// TestOneWayPortsUsedAgain checks that a client's port can be reused. After a FIN the
// connection goes to the same real server, counts as open and ends as usual; after a
// reset the next connection may go to another real server.
func TestOneWayPortsUsedAgain(t *testing.T) {
	eachOneDirection(t, func(o *oneDirection, client netip.AddrPort) {
		real := o.open(client)
		o.send(client, fin|ack, 1101, 5001, 0)
		o.send(client, ack, 1102, 5002, 0)
		if now := o.send(client, syn, 900000, 0, 0); now != real {
			t.Errorf("a SYN after a FIN goes to %s, want %s, which may challenge it", o.reals[now], o.reals[real])
		}
		o.send(client, ack, 900001, 70001, 0)
		o.send(client, ack|psh, 900001, 70001, 50)
		if n := o.active(); n != 1 {
			t.Errorf("%d connections count as open after the SYN, want 1", n)
		}
		o.send(client, fin|ack, 900051, 70001, 0)
		if n := o.active(); n != 0 {
			t.Errorf("%d connections count as open after the second FIN, want 0", n)
		}
		o.send(client, rst, 900052, 0, 0)
		if left := o.flows(t); len(left) != 0 {
			t.Errorf("after a reset the flows %v are left", left)
		}
		if now := o.send(client, syn, 5, 0, 0); now == real {
			t.Error("after a reset the next connection goes to the old real server")
		}
	})
}

// TestOneWayAndDraining checks that a closed connection does not assign the client's
// next one to a real server that is draining.
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
