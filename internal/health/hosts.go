package health

import (
	"math/rand/v2"
	"time"
)

// Theory of operation (ADR 51). If a host with many real servers fails, each of them
// would be checked in its own time, up to an interval later. Therefore a check that is
// not answered within settings.beside makes all servers of the host be checked at once,
// unless one of them has answered since that check began. Each server still needs its
// own failed checks to be down. The checks of a host's servers are spread over their
// interval, so that one of them begins soon after the host has failed.

// host is a host with real servers of any services. A nil host is ignored.
type host struct {
	servers map[*server]bool
	// answered is when one of the servers last answered a check.
	answered time.Time
}

// answers records the result of a check of one of the servers.
func (h *host) answers(res Result, now time.Time) {
	if h != nil && res.OK {
		h.answered = now
	}
}

// setHost sets the host of a server by its name, empty if it is not known.
func (m *Monitor) setHost(s *server, name string) {
	h := m.hosts[name]
	if s.host != nil && s.host == h {
		return
	}
	if s.host != nil {
		delete(s.host.servers, s)
		if len(s.host.servers) == 0 {
			delete(m.hosts, s.hostName)
		}
	}
	s.host, s.hostName = h, name
	if name == "" {
		return
	}
	if h == nil {
		s.host = &host{servers: map[*server]bool{}}
		m.hosts[name] = s.host
	}
	s.host.servers[s] = true
}

// suspect is called when a check of the server is not answered in time. The checks of
// all servers of its host that have not been checked since begin at once, unless one of
// them has answered since. A server's check is brought forward once per interval, so
// that slow servers are not checked more than twice as often.
func (m *Monitor) suspect(s *server, now time.Time) {
	since := s.checks[0].began
	if s.host == nil || !s.host.answered.Before(since) {
		return
	}
	for o := range s.host.servers {
		if len(o.checks) == 0 && o.began.Before(since) && o.next.After(now) && o.mayFail() &&
			now.Sub(o.hurried) >= o.of.settings.interval {
			o.next, o.joined, o.hurried = now, true, now
			m.plan(o, now)
		}
	}
}

// mayFail reports whether checks can take the server down.
func (s *server) mayFail() bool { return s.rec.Up || !s.rec.Known }

// spread returns the wait before the server's next check. After a check that began
// together with those of other servers of the host, it is a random part of d.
func (s *server) spread(d time.Duration) time.Duration {
	if !s.joined || !s.rec.Up || s.rec.Streak > 0 {
		return d
	}
	s.joined = false
	return time.Duration(rand.Float64() * float64(d))
}
