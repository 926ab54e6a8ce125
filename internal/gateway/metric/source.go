package metric

import "sync/atomic"

// Source finds the counters of the requests that take one router at one entry point, or no router.
type Source struct {
	entry, router, service string
	// lists are chains of counters by class; a class is in the list of its status.
	lists [16]atomic.Pointer[listed]
}

// listed are the counters of a class.
type listed struct {
	class
	// next is set before the list has this, and does not change.
	next *listed
	// Those that the settings leave out are nil, and those of objects that the configuration lacks.
	entry, router, atService *counters
}

// NewSource returns the source of the requests that take the router to the service. Router and
// service are empty for those that take none. It returns nil if nothing is counted.
func (m *Metrics) NewSource(entry, router, service string) *Source {
	if !m.Enabled {
		return nil
	}
	return &Source{entry: entry, router: router, service: service}
}

// list returns the list that has the class.
func (s *Source) list(c *class) *atomic.Pointer[listed] { return &s.lists[int(c.status)%len(s.lists)] }

// find returns the counters of the class, nil if there are none yet.
func (s *Source) find(c *class) *listed {
	for at := s.list(c).Load(); at != nil; at = at.next {
		if at.class == *c {
			return at
		}
	}
	return nil
}

// Count counts a request of the source.
func (m *Metrics) Count(s *Source, r *Request) {
	c := classOf(r)
	at := s.find(&c)
	if at == nil {
		at = m.add(s, c)
	}
	at.entry.count(r, r.Took)
	at.router.count(r, r.Took)
	at.atService.count(r, r.ServiceTook)
	if r.Retries > 0 && at.atService != nil {
		at.atService.retries.Add(float64(r.Retries))
	}
}

// add adds the counters of a class to the source.
func (m *Metrics) add(s *Source, c class) *listed {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := s.find(&c); at != nil {
		return at
	}
	list := s.list(&c)
	at := &listed{class: c, next: list.Load(), entry: m.entryPoints.of(s.entry, "", c)}
	if s.router != "" && m.hasRouter(s.router, s.service) {
		at.router = m.routers.of(s.router, s.service, c)
	}
	if c.service != "" && m.hasService(c.service) {
		at.atService = m.services.of(c.service, "", c)
	}
	list.Store(at)
	return at
}
