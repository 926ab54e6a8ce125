package ebpf

import (
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/kernel/bpf"
)

// session is one TCP connection of a client to a service.
type session struct {
	*bench
	t        *testing.T
	name     string
	frontend netip.AddrPort
	// real is the real server that the client's last packet went to.
	real netip.AddrPort
}

// from sends a segment from the client, and records the real server that gets it.
func (s *session) from(flags uint8, seq, ack uint32, payload int) {
	s.t.Helper()
	p := packet{src: client4, dst: s.frontend, flags: flags, seq: seq, ack: ack, payload: make([]byte, payload)}
	_, s.real = ends(s.mustMap(s.t, s.name, Uplink, s.up, p.frame()))
}

// to sends a segment from the real server.
func (s *session) to(flags uint8, seq, ack uint32, payload int) {
	s.t.Helper()
	p := packet{src: s.real, dst: client4, flags: flags, seq: seq, ack: ack, payload: make([]byte, payload)}
	s.mustMap(s.t, s.name, Sandbox, s.behind(s.real.Addr()), p.frame())
}

// open opens the connection: the client's next sequence number is 1101, the real
// server's 5201.
func (s *session) open() netip.AddrPort {
	s.t.Helper()
	s.from(syn, 1000, 0, 0)
	s.to(syn|ack, 5000, 1001, 0)
	s.from(ack, 1001, 5001, 100)
	s.to(ack, 5001, 1101, 200)
	s.from(ack, 1101, 5201, 0)
	return s.real
}

// takingTurns sets the service web with round robin, so that each new connection goes
// to another real server than the one before.
func takingTurns(t *testing.T) *session {
	t.Helper()
	b := newBench(t)
	service := b.served(false, true)
	b.hold(t, service)
	return &session{bench: b, t: t, frontend: service.Frontends[0]}
}

// next deletes all flows and opens the next connection.
func (s *session) next(name string) netip.AddrPort {
	s.t.Helper()
	s.forget(s.t)
	s.name = name
	return s.open()
}

// staysWith fails the test unless a bare SYN with any sequence number goes to the real
// server.
func (s *session) staysWith(real netip.AddrPort) {
	s.t.Helper()
	for _, seq := range []uint32{0, 1, 1000, 1101, 1 << 20, 1 << 31, 1<<32 - 1} {
		if s.from(syn, seq, 0, 0); s.real != real {
			s.t.Fatalf("%s: a SYN with the sequence number %d moves the connection from %s to %s", s.name, seq, real,
				s.real)
		}
	}
}

// moves fails the test unless a SYN goes to another real server.
func (s *session) moves(name string, from netip.AddrPort) {
	s.t.Helper()
	if s.from(syn, 900000, 0, 0); s.real == from {
		s.t.Errorf("%s: a SYN still goes to %s", name, from)
	}
}

// TestSYNsOfOpenConnections checks that a bare SYN in an open connection goes to the
// connection's real server and does not change the flow, whatever its sequence number.
func TestSYNsOfOpenConnections(t *testing.T) {
	s := takingTurns(t)
	real := s.next("open")
	s.staysWith(real)
	s.to(ack, 5201, 1101, 0) // a challenge ACK
	s.from(ack, 1101, 5201, 10)
	s.to(ack, 5201, 1111, 10)
	if s.real != real || len(s.flows(t)) != 1 {
		t.Errorf("after SYNs data goes to %s, want %s, and there are %d flows", s.real, real, len(s.flows(t)))
	}
	s.name = "closed by the server"
	s.to(fin|ack, 5211, 1111, 0)
	s.staysWith(real)
	s.from(ack, 1111, 5212, 0)
	s.staysWith(real)
}

// TestForgedEnds checks that a FIN or a reset with a wrong sequence number does not end
// a connection, and that a SYN after it does not either.
func TestForgedEnds(t *testing.T) {
	s := takingTurns(t)
	for name, forged := range map[string]packet{
		"FIN with an old number":        {flags: fin | ack, seq: 500, ack: 5201},
		"FIN out of the window":         {flags: fin | ack, seq: 500000, ack: 5201},
		"RST with an old number":        {flags: rst, seq: 1100},
		"RST in the window":             {flags: rst, seq: 1102},
		"RST out of the window":         {flags: rst, seq: 1 << 30},
		"FIN out of the window, no ACK": {flags: fin, seq: 1 << 31},
	} {
		real := s.next(name)
		s.from(forged.flags, forged.seq, forged.ack, 0)
		s.staysWith(real)
		s.to(ack, 5201, 1101, 0) // the challenge ACK
		s.alter(t, s.flows(t)[0], func(f *bpf.FairleadFlow) { f.Seen, f.Tick = f.Seen-uint64(time.Hour), f.Tick-1 })
		s.to(ack, 5201, 1101, 10)
		if s.from(ack, 1101, 5211, 0); s.real != real {
			t.Errorf("%s: after an hour of silence the connection moves to %s", name, s.real)
		}
	}
}

// TestPortsUsedAgain checks that a SYN begins a new connection once the real server no
// longer has the old one, or both ends have closed it.
func TestPortsUsedAgain(t *testing.T) {
	s := takingTurns(t)
	for name, end := range map[string]func(){
		"closed": func() {
			s.from(fin|ack, 1101, 5201, 0)
			s.to(fin|ack, 5201, 1102, 0)
		},
		"challenged and reset by the client": func() {
			s.from(syn, 700000, 0, 0)
			s.to(ack, 5201, 1101, 0)
			s.from(rst, 1101, 0, 0)
		},
		"refused by the server": func() {
			s.from(syn, 700000, 0, 0)
			s.to(rst|ack, 0, 700001, 0)
		},
		"reset by the server":                    func() { s.to(rst, 5201, 0, 0) },
		"reset by the server, out of the window": func() { s.to(rst, 5201+1<<25, 0, 0) },
		"reset by the client before data was acknowledged": func() {
			s.from(ack, 1101, 5201, 50)
			s.from(rst, 1151, 5201, 0)
			s.to(ack, 5201, 1151, 0)
			s.from(rst, 1151, 0, 0)
		},
	} {
		real := s.next(name)
		end()
		s.moves(name, real)
	}
}

// TestPortUsedAgainWithTheSameServer checks the case that a real server without the old
// connection answers a SYN with its own SYN. The new connection opens and closes as usual.
func TestPortUsedAgainWithTheSameServer(t *testing.T) {
	s := takingTurns(t)
	real := s.next("port reused")
	s.from(syn, 900000, 0, 0)
	s.to(syn|ack, 70000, 900001, 0)
	s.from(ack, 900001, 70001, 10)
	s.staysWith(real)
	s.to(fin|ack, 70001, 900011, 0)
	s.from(fin|ack, 900011, 70002, 0)
	s.to(ack, 70002, 900012, 0)
	if left := s.flows(t); len(left) != 0 {
		t.Errorf("after both ends have closed, the flows %v are left", left)
	}
	s.moves("closed", real)
}
