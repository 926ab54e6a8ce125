package health

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/model"
)

// Snapshot is what a Monitor knows, for one that follows it.
type Snapshot []Remembered

// Remembered is one real server's record.
type Remembered struct {
	Service  string         `json:"service"`
	Real     netip.AddrPort `json:"real"`
	Endpoint string         `json:"endpoint,omitempty"`
	Record   Record         `json:"record"`
}

// origin says whose a record is.
type origin struct {
	service string
	real    netip.AddrPort
}

// remembers is how long records wait for their servers after a restart:
// containers may be found only later.
const remembers = 2 * time.Minute

// Export returns what is known, in a fixed order.
func (m *Monitor) Export() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := Snapshot{}
	for name, of := range m.services {
		for at, s := range of.servers {
			all = append(all, Remembered{name, at, s.endpoint, s.rec})
		}
	}
	slices.SortFunc(all, func(a, b Remembered) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), a.Real.Compare(b.Real))
	})
	return all
}

// Import makes servers that are Set within the next two minutes begin as they
// were, rather than anew. It comes before the first Set. Held are the services as
// their planes have them now, as far as the checks have a say in it: who died
// before it could be asked for a Snapshot has left an old one, or none.
func (m *Monitor) Import(all Snapshot, services []model.VirtualService) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.past = past{at: now, records: make(map[origin]Remembered, len(all)), services: map[string]bool{}}
	for _, one := range all {
		m.past.records[origin{one.Service, one.Real}] = one
		m.past.services[one.Service] = true
	}
	for _, v := range services {
		m.past.correct(v, now)
		m.past.services[v.Name] = true
	}
}

// Forget has a service that was taken away for good, and is Set once more, begin
// anew, though the Monitor has Imported something of it a short time ago. It
// comes after the Set that took it away.
func (m *Monitor) Forget(service string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.past.services, service)
	maps.DeleteFunc(m.past.records, func(whose origin, _ Remembered) bool { return whose.service == service })
}

// past is what was known at a time, before a restart.
type past struct {
	at       time.Time
	records  map[origin]Remembered
	services map[string]bool
}

// correct has the records of a service say what its planes have, so that these
// go on as they are. In a panic they have all, whatever the records say.
func (p *past) correct(services model.VirtualService, now time.Time) {
	asked := services.Clone()
	asked.Reals = slices.DeleteFunc(asked.Reals, func(r model.RealServer) bool { return r.At(0) == services.Sorry })
	for i := range asked.Reals {
		asked.Reals[i].State = model.RealUp
	}
	panics := Judge(asked, p.view(services.Name)).Mode == ModePanic
	for _, r := range services.Reals {
		whose := origin{services.Name, r.At(0)}
		one, known := p.records[whose]
		up := r.State != model.RealDown
		if r.At(0) == services.Sorry || known && up == (one.Record.State() != model.RealDown) || known && up && panics {
			continue
		}
		p.records[whose] = Remembered{services.Name, whose.real, cmp.Or(r.Endpoint, one.Endpoint), taken(one.Record, up, settle(services.Check), now)}
	}
}

// taken returns the record of a server that is up or down with its plane, where
// the one before says otherwise.
func taken(r Record, up bool, s settings, now time.Time) Record {
	r = Record{Up: up, Known: true, Since: now, Ejections: r.Ejections, Cause: "so it was when the daemon before ended"}
	if !up && !s.checked { // by clients' failures
		r.Ejected, r.Until = now, now.Add(hold(r.Ejections))
		r.Ejections++
	}
	return r
}

// view tells what the records say of a service's servers.
func (p *past) view(service string) View {
	return func(r model.RealServer) (Condition, bool) {
		one, known := p.records[origin{service, r.At(0)}]
		return Condition{State: one.Record.State(), Share: 100}, known
	}
}

// keep takes the record of a server back that is Set no more: it may be, again.
func (p *past) keep(one Remembered, now time.Time) {
	if now.Sub(p.at) < remembers {
		p.records[origin{one.Service, one.Real}] = one
	}
}

// take returns the record of a service's real server, which is given once.
func (p *past) take(service string, r model.RealServer, now time.Time) (Record, bool) {
	if now.Sub(p.at) >= remembers {
		*p = past{}
	}
	whose := origin{service, r.At(0)}
	one, ok := p.records[whose]
	if !ok || replaced(one.Endpoint, r.Endpoint) {
		return Record{}, false
	}
	delete(p.records, whose)
	return one.Record, true
}

// had reports whether a service was there.
func (p *past) had(service string, now time.Time) bool {
	return now.Sub(p.at) < remembers && p.services[service]
}
