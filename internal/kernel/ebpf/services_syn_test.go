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

// from sends a segment of the client's, and notes which real server gets it.
func (s *session) from(flags uint8, seq, ack uint32, payload int) {
	s.t.Helper()
	p := packet{src: client4, dst: s.frontend, flags: flags, seq: seq, ack: ack, payload: make([]byte, payload)}
	_, s.real = ends(s.mustMap(s.t, s.name, Uplink, s.up, p.frame()))
}

// to sends a segment of the real server's.
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

// takingTurns serves the service web by turns, so that each new connection goes to
// another real server than the one before.
func takingTurns(t *testing.T) *session {
	t.Helper()
	b := newBench(t)
	service := b.served(false, true)
	b.hold(t, service)
	return &session{bench: b, t: t, frontend: service.Frontends[0]}
}

// next opens the next connection, without the ones before.
func (s *session) next(name string) netip.AddrPort {
	s.t.Helper()
	s.forget(s.t)
	s.name = name
	return s.open()
}

// staysWith fails the test unless a bare SYN goes to the real server.
func (s *session) staysWith(real netip.AddrPort) {
	s.t.Helper()
	for _, seq := range []uint32{0, 1, 1000, 1101, 1 << 20, 1 << 31, 1<<32 - 1} {
		if s.from(syn, seq, 0, 0); s.real != real {
			s.t.Fatalf("%s: a SYN with the sequence number %d moves the connection from %s to %s", s.name, seq, real, s.real)
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

// TestSYNsOfOpenConnections: a bare SYN in a connection goes where that goes, and
// changes nothing about it, whatever its sequence number.
func TestSYNsOfOpenConnections(t *testing.T) {
	s := takingTurns(t)
	real := s.next("open")
	s.staysWith(real)
	s.to(ack, 5201, 1101, 0) // a challenge
	s.from(ack, 1101, 5201, 10)
	s.to(ack, 5201, 1111, 10)
	if s.real != real || len(s.flows(t)) != 1 {
		t.Errorf("after SYNs data goes to %s, not %s, and there are %d flows", s.real, real, len(s.flows(t)))
	}
	s.name = "closed by the server"
	s.to(fin|ack, 5211, 1111, 0)
	s.staysWith(real)
	s.from(ack, 1111, 5212, 0)
	s.staysWith(real)
}

// TestForgedEnds: a FIN or a reset with a wrong sequence number, and a SYN after it,
// end nothing.
func TestForgedEnds(t *testing.T) {
	s := takingTurns(t)
	for name, forged := range map[string]packet{
		"FIN of the past":     {flags: fin | ack, seq: 500, ack: 5201},
		"FIN of the future":   {flags: fin | ack, seq: 500000, ack: 5201},
		"RST of the past":     {flags: rst, seq: 1100},
		"RST in the window":   {flags: rst, seq: 1102},
		"RST of the future":   {flags: rst, seq: 1 << 30},
		"FIN of any sequence": {flags: fin, seq: 1 << 31},
	} {
		real := s.next(name)
		s.from(forged.flags, forged.seq, forged.ack, 0)
		s.staysWith(real)
		s.to(ack, 5201, 1101, 0) // whatever the packet was, it is challenged
		s.alter(t, s.flows(t)[0], func(f *bpf.FairleadFlow) { f.Seen, f.Tick = f.Seen-uint64(time.Hour), f.Tick-1 })
		s.to(ack, 5201, 1101, 10)
		if s.from(ack, 1101, 5211, 0); s.real != real {
			t.Errorf("%s: after an hour of silence the connection moves to %s", name, s.real)
		}
	}
}

// TestPortsUsedAgain: a SYN begins another connection once the real server does not
// know the old one, or both ends have closed it.
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
		"reset by the server":          func() { s.to(rst, 5201, 0, 0) },
		"reset by the server, far off": func() { s.to(rst, 5201+1<<25, 0, 0) },
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

// TestPortUsedAgainWithTheSameServer: a real server that has forgotten the
// connection answers a SYN by its own. The new one is open and closes as any does.
func TestPortUsedAgainWithTheSameServer(t *testing.T) {
	s := takingTurns(t)
	real := s.next("used again")
	s.from(syn, 900000, 0, 0)
	s.to(syn|ack, 70000, 900001, 0)
	s.from(ack, 900001, 70001, 10)
	s.staysWith(real)
	s.to(fin|ack, 70001, 900011, 0)
	s.from(fin|ack, 900011, 70002, 0)
	s.to(ack, 70002, 900012, 0)
	if left := s.flows(t); len(left) != 0 {
		t.Errorf("after both ends have closed %v is left", left)
	}
	s.moves("closed", real)
}
