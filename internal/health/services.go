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

// service is a service that is checked.
type service struct {
	v        model.VirtualService
	settings settings
	// checker is nil if no checks are made.
	checker Checker
	servers map[netip.AddrPort]*server
	pool    Pool
}

// server is a real server of a service. next is the time of the next check, turns
// the time at which the record changes without a check, and when the earlier of
// both; place is the server's index in the schedule's heap.
type server struct {
	of     *service
	at     netip.AddrPort
	target Target
	// endpoint is the last known endpoint of the server.
	endpoint string
	rec      Record
	// reported is the condition that was last reported.
	reported Condition
	last     Result
	lastAt   time.Time
	counts   Counts

	next, turns, when time.Time
	place             int
	// checks are the checks that wait or are in progress, the oldest first.
	checks []*attempt
	// began is when the latest check began.
	began time.Time
	// host is the host that the server shares with others, by its name; nil if it is not
	// known.
	host     *host
	hostName string
	// joined is true if the next check, or the one in progress, begins together with
	// those of other servers of the host. Hurried is when that last happened because the
	// host may have failed.
	joined  bool
	hurried time.Time
	// gone is true if the server was removed.
	gone bool
}

// Set checks these services from now on, and no others. It skips real servers
// without an address. Services and servers that did not change keep their state
// and their place in the schedule. The error lists services that cannot be
// checked: their servers count as up.
func (m *Monitor) Set(services []model.VirtualService) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var errs []error
	var fresh []*server
	wanted := make(map[string]bool, len(services))
	for _, v := range services {
		wanted[v.Name] = true
		added, err := m.set(v, now)
		fresh = append(fresh, added...)
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
	m.kick.Send()
	return errors.Join(errs...)
}

// Hold delays the first checks of servers that Set adds from now on, until the
// returned function is called: routes or links to them may have to be made first.
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

// set adds or changes one service, and returns the servers to check for the first
// time.
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
		s, added := m.serve(of, r, isNew, now)
		keep[s.at] = true
		if added || rechecked {
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
	added := s == nil || replaced(s.endpoint, r.Endpoint)
	if added {
		if s != nil {
			m.leave(s)
		}
		s = &server{of: of, at: at, place: -1, rec: m.begin(of, r, newService, now)}
		s.reported = s.rec.condition(of.settings, now)
		of.servers[at] = s
	}
	s.endpoint = cmp.Or(r.Endpoint, s.endpoint)
	m.setHost(s, r.Node)
	s.target = Target{Service: of.v.Name, Real: netip.AddrPortFrom(r.Address, checkedPort(of.v, r)),
		Endpoint: r.Endpoint}
	if m.o.Dial != nil {
		s.target.Dial = m.o.Dial(of.v, r)
	}
	return s, added
}

// replaced reports whether an address belongs to another endpoint than before. An
// unknown endpoint ("") does not count as another.
func replaced(before, now string) bool { return before != "" && now != "" && before != now }

// begin returns the first record of a server.
func (m *Monitor) begin(of *service, r model.RealServer, newService bool, now time.Time) Record {
	if rec, ok := m.past.take(of.v.Name, r, now); ok {
		return rec
	}
	return first(of.v.Check, newService, now)
}

// drop removes the servers of a service that are not in keep.
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
	m.setHost(s, "")
	m.due.set(s)
}

// gap is the time between the first checks of servers that are added together, if
// all of these fit into the interval.
const gap = 5 * time.Millisecond

// start plans the first checks of servers, spread over their interval.
func (m *Monitor) start(fresh []*server, now time.Time) {
	for i, s := range fresh {
		apart := min(gap, s.of.settings.interval/time.Duration(len(fresh)))
		if s.of.checker != nil {
			s.next, s.joined = now.Add(time.Duration(i)*apart), s.host != nil
		}
		m.plan(s, now)
	}
}

// Signal counts clients' connections to a real server that a data plane has seen.
// real is the server's address and port in the service (port 0 is the port that
// the client dialled). Signal does not take down the last server that may get
// clients if the service has no checks, which would bring it back, and no sorry
// server.
func (m *Monitor) Signal(service string, real netip.AddrPort, sig Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[service]
	if of == nil || of.servers[real] == nil {
		return
	}
	s, now := of.servers[real], time.Now()
	if s.rec.Failed+sig.Failed >= burst && of.keepsLast(now) {
		return
	}
	before := s.rec.State()
	if s.rec.signalled(of.settings, sig, now) {
		s.counts.Ejected++
		m.note(s, before, true, now)
		m.plan(s, now)
	}
}

// keepsLast reports whether clients' failures cannot take down the last server
// that may get clients.
func (of *service) keepsLast(now time.Time) bool {
	return !of.settings.checked && !of.v.Sorry.IsValid() && Judge(of.v, of.view(now)).Up <= 1
}

// Readmit brings back a real server that clients' failures took down, and reports
// whether they did. The results of checks stay.
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

// view returns the View of the service's servers at a time.
func (of *service) view(now time.Time) View {
	return func(r model.RealServer) (Condition, bool) {
		s := of.servers[r.At(0)]
		if s == nil || replaced(s.endpoint, r.Endpoint) {
			return Condition{}, false
		}
		return s.rec.condition(of.settings, now), true
	}
}

// Effective returns the service as it should be in its data planes now (see the
// function Effective), and the status from which this follows. The service must
// be one that was Set.
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
