package balance_test

import (
	"errors"
	"net/netip"

	"fairlead/internal/model"
	"fairlead/test/place"

	"golang.org/x/sys/unix"
)

// self returns the host itself as a real server, with its address on the LAN.
func (l *lan) self(v4 bool, port uint16) model.RealServer {
	r := model.RealServer{Address: netip.MustParseAddr("2001:db8:113::1"), Port: port, Weight: 1}
	if v4 {
		r.Address = netip.MustParseAddr("203.0.113.1")
	}
	return r
}

// local checks the host itself as a real server: it receives the client's address, and a client
// gets an error if no socket listens.
func (l *lan) local(proto model.Proto, v4 bool) {
	serveAt(l, l.DoServer, "host", 80)
	v := l.service(proto, v4)
	v.Reals = []model.RealServer{l.self(v4, 80)}
	l.set(v)
	t, s := l.talk(l.DoClient, proto, v4)
	if s.by != "host" || s.sees != clientAddr(v4) || s.port != 80 {
		l.Errorf("%s receives the request at port %d from %s, want host at port 80 from %s", s.by, s.port, s.sees,
			clientAddr(v4))
	}
	t.saysMuch(map[model.Proto]int{model.TCP: 1 << 20, model.UDP: 4000}[proto])
	for _, from := range []place.Place{l.DoServer, l.in("a")} {
		l.only(l.spread(from, proto, v4, 2), "host")
	}
	v.Reals = []model.RealServer{l.self(v4, 81)}
	l.set(v)
	l.isRefused(l.DoClient, proto, v4, 8080)
}

// localAmongOthers checks the host as one of several real servers. It gets its share of new flows,
// keeps its conversations when other servers change, and loses them when it is down.
func (l *lan) localAmongOthers(proto model.Proto, v4 bool) {
	serveAt(l, l.DoServer, "host", 80)
	v := l.service(proto, v4, "a", "far1")
	v.Scheduler, v.Reals = model.RoundRobin, append(v.Reals, l.self(v4, 80))
	l.set(v)
	for _, from := range []place.Place{l.DoClient, l.DoServer, l.in("b")} {
		l.only(l.spread(from, proto, v4, 9), "a", "far1", "host")
	}
	talks := l.talks(proto, v4, 6)
	drained := v.Clone()
	drained.Reals[2].State = model.RealDraining
	l.set(drained)
	l.continues(talks)
	l.only(l.spread(l.DoClient, proto, v4, 6), "a", "far1")
	drained.Reals[2].State = model.RealDown
	l.set(drained)
	for _, c := range talks {
		switch {
		case c.with != "host":
			l.continues([]conversation{c})
		case proto == model.TCP:
			c.isReset()
		default:
			if s := c.hears(); s.by == "host" {
				l.Errorf("%s answers although it is down", s.by)
			}
		}
	}
}

// isReset fails the test unless the client is reset when it continues the conversation.
func (t talk) isReset() {
	t.l.Helper()
	if _, err := t.ask(); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		t.l.Errorf("%s is not reset: %v", t.conn.LocalAddr(), err)
	}
}

// localDirect checks that the host as a real server receives unchanged packets with direct
// forwarding.
func (l *lan) localDirect(proto model.Proto, v4 bool) {
	serveAt(l, l.DoServer, "host", 8080)
	l.prepare("far1", v4)
	v := l.service(proto, v4, "far1")
	v.Scheduler, v.Forward, v.Reals[0].Port = model.RoundRobin, model.ForwardDirect, 0
	v.Reals = append(v.Reals, l.self(v4, 0))
	l.set(v)
	l.reaches(6, proto, v4, "far1", "host")
	v.Reals = v.Reals[1:]
	l.set(v)
	l.only(l.spread(l.in("a"), proto, v4, 2), "host")
	l.only(l.spread(l.DoServer, proto, v4, 2), "host")
}
