package health

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/model"
)

// service is one that is checked.
type service struct {
	v        model.VirtualService
	settings settings
	// checker is nil where nothing is asked.
	checker Checker
	servers map[netip.AddrPort]*server
	pool    Pool
}

// server is a real server of a service. What is said of a schedule is the
// Monitor's: next is when to check, turns when the record says something else
// by itself, and when the earlier of both; place is that in the heap.
type server struct {
	of     *service
	at     netip.AddrPort
	target Target
	// endpoint is the one that it was last known to be.
	endpoint string
	rec      Record
	// notified is what was last told of it.
	notified Condition
	last     Result
	lastAt   time.Time
	counts   Counts

	next, turns, when time.Time
	place             int
	// checks are those that wait or are under way, the oldest first.
	checks []*attempt
	// began is when the last of all has begun.
	began time.Time
	// gone says that the server is no longer wanted.
	gone bool
}

// Set checks these services from now on, and no others. Their real servers
// have addresses; those that have none are passed over. What is as it was keeps
// its state and its place in the schedule. The error tells of services that
// cannot be checked: their servers are taken for up.
func (m *Monitor) Set(services []model.VirtualService) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var errs []error
	var fresh []*server
	wanted := make(map[string]bool, len(services))
	for _, v := range services {
		wanted[v.Name] = true
		come, err := m.set(v, now)
		fresh = append(fresh, come...)
		errs = append(errs, err)
	}
	for name, of := range m.services {
		if !wanted[name] {
			m.drop(of, nil, now)
			delete(m.services, name)
		}
	}
	if m.holds > 0 {
		m.pending = append(m.pending, fresh...)
	} else {
		m.start(fresh, now)
	}
	m.nudge()
	return errors.Join(errs...)
}

// Hold puts off the first checks of the servers that come by Set from now on,
// until the function that it returns is called: what leads to them may have to
// be made first.
func (m *Monitor) Hold() (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.holds--; m.holds > 0 {
			return
		}
		m.start(slices.DeleteFunc(m.pending, func(s *server) bool { return s.gone }), time.Now())
		m.pending = nil
	}
}

// set takes one service, and returns the servers that are to be checked for
// the first time.
func (m *Monitor) set(v model.VirtualService, now time.Time) (fresh []*server, err error) {
	of := m.services[v.Name]
	isNew := of == nil
	if !isNew && of.v.Equal(v) {
		return nil, nil
	}
	if isNew {
		of = &service{servers: map[netip.AddrPort]*server{}}
		m.services[v.Name] = of
		isNew = !m.past.had(v.Name, now)
	}
	rechecked := !of.v.Check.Equal(v.Check)
	of.v = v.Clone()
	if rechecked || of.settings.interval == 0 {
		of.settings = settle(v.Check)
		if of.checker, err = New(v.Check, m.o.Means); err != nil {
			err = fmt.Errorf("service %s: %w", v.Name, err)
			of.settings.checked = false
		}
	}
	keep := make(map[netip.AddrPort]bool, len(v.Reals))
	for _, r := range of.v.Reals {
		if !r.Address.IsValid() || keep[r.At(0)] {
			continue
		}
		s, come := m.serve(of, r, isNew, now)
		keep[s.at] = true
		if come || rechecked {
			s.end()
			m.note(s, s.rec.State(), s.rec.adapt(of.v.Check, of.settings, now), now)
			fresh = append(fresh, s)
		}
	}
	m.drop(of, keep, now)
	if Judge(of.v, of.view(now)).Mode != of.pool.Mode {
		m.touch(of)
	}
	return fresh, err
}

// serve returns the service's server, and whether it is new.
func (m *Monitor) serve(of *service, r model.RealServer, newService bool, now time.Time) (*server, bool) {
	at := r.At(0)
	s := of.servers[at]
	come := s == nil || replaced(s.endpoint, r.Endpoint)
	if come {
		if s != nil {
			m.leave(s)
		}
		s = &server{of: of, at: at, place: -1, rec: m.begin(of, r, newService, now)}
		s.notified = s.rec.condition(of.settings, now)
		of.servers[at] = s
	}
	s.endpoint = cmp.Or(r.Endpoint, s.endpoint)
	s.target = Target{Service: of.v.Name, Real: netip.AddrPortFrom(r.Address, checkedPort(of.v, r)), Endpoint: r.Endpoint}
	if m.o.Dial != nil {
		s.target.Dial = m.o.Dial(of.v, r)
	}
	return s, come
}

// replaced reports whether an address is another endpoint's than before. One
// that is not known, or no more, is no other.
func replaced(before, now string) bool { return before != "" && now != "" && before != now }

// begin returns the record with which a server begins.
func (m *Monitor) begin(of *service, r model.RealServer, newService bool, now time.Time) Record {
	if rec, ok := m.past.take(of.v.Name, r, now); ok {
		return rec
	}
	return first(of.v.Check, newService, now)
}

// drop forgets the servers of a service that are not to be kept.
func (m *Monitor) drop(of *service, keep map[netip.AddrPort]bool, now time.Time) {
	for at, s := range of.servers {
		if !keep[at] {
			m.leave(s)
			m.past.keep(Remembered{of.v.Name, at, s.endpoint, s.rec}, now)
			delete(of.servers, at)
		}
	}
}

func (m *Monitor) leave(s *server) {
	s.gone = true
	s.end()
	m.due.set(s)
}

// gap is how far apart the first checks of servers are that come together,
// if they are so few that this is done within the interval.
const gap = 5 * time.Millisecond

// start plans the first check of servers, spread over their interval.
func (m *Monitor) start(fresh []*server, now time.Time) {
	for i, s := range fresh {
		apart := min(gap, s.of.settings.interval/time.Duration(len(fresh)))
		if s.of.checker != nil {
			s.next = now.Add(time.Duration(i) * apart)
		}
		m.plan(s, now)
	}
}

// Signal takes what a plane has seen of clients' connections to a real server,
// which it names by address and port as the service does (0 is the port that
// the client has dialled). The last server that may get clients is left, where
// nothing would tell that it is back, and nobody else would serve them.
func (m *Monitor) Signal(service string, real netip.AddrPort, sig Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[service]
	if of == nil || of.servers[real] == nil {
		return
	}
	s, now := of.servers[real], time.Now()
	if s.rec.Failed+sig.Failed >= burst && of.clings(now) {
		return
	}
	before := s.rec.State()
	if s.rec.signalled(of.settings, sig, now) {
		s.counts.Ejected++
		m.note(s, before, true, now)
		m.plan(s, now)
	}
}

// clings reports whether the last server that may get clients is kept whatever
// becomes of them.
func (of *service) clings(now time.Time) bool {
	return !of.settings.checked && !of.v.Sorry.IsValid() && Judge(of.v, of.view(now)).Up <= 1
}

// Readmit ends at once that clients' failures keep a real server down, and
// reports whether they did. What checks have found stays.
func (m *Monitor) Readmit(service string, real netip.AddrPort) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[service]
	if of == nil || of.servers[real] == nil {
		return false
	}
	s, now := of.servers[real], time.Now()
	before := s.rec.State()
	if !s.rec.readmitted(of.settings, now) {
		return false
	}
	m.note(s, before, true, now)
	m.plan(s, now)
	return true
}

// view tells what is known of the service's servers at a time.
func (of *service) view(now time.Time) View {
	return func(r model.RealServer) (Condition, bool) {
		s := of.servers[r.At(0)]
		if s == nil || replaced(s.endpoint, r.Endpoint) {
			return Condition{}, false
		}
		return s.rec.condition(of.settings, now), true
	}
}

// Effective returns the service as its planes shall hold it now (see the
// function of that name), and what is known that makes it so. The service is
// one that was Set.
func (m *Monitor) Effective(v model.VirtualService) (model.VirtualService, ServiceStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[v.Name]
	if of == nil {
		of = &service{}
	}
	now := time.Now()
	return Effective(v, of.view(now)), of.status(v, now)
}
