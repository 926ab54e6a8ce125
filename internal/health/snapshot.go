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

// Snapshot is the state of a Monitor, for the Monitor after a restart.
type Snapshot []Remembered

// Remembered is one real server's record.
type Remembered struct {
	Service  string         `json:"service"`
	Real     netip.AddrPort `json:"real"`
	Endpoint string         `json:"endpoint,omitempty"`
	Record   Record         `json:"record"`
}

// origin identifies the server of a record.
type origin struct {
	service string
	real    netip.AddrPort
}

// remembers is how long imported records are kept for servers that are not Set
// yet: containers may be found only later.
const remembers = 2 * time.Minute

// Export returns the state of all servers, in a fixed order.
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

// Import makes servers that are Set within the next two minutes begin with their
// old records. It must be called before the first Set. services are the checked
// services as they are now in their data planes: if the process before was killed,
// the snapshot may be old or missing.
func (m *Monitor) Import(all Snapshot, services []model.VirtualService) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.past = past{at: now, records: make(map[origin]Remembered, len(all)), services: map[string]bool{}}
	for _, one := range all {
		one.Record = one.Record.at(now)
		m.past.records[origin{one.Service, one.Real}] = one
		m.past.services[one.Service] = true
	}
	for _, v := range services {
		m.past.correct(v, now)
		m.past.services[v.Name] = true
	}
}

// Forget deletes the imported records of a service that was removed, so that a
// service of the same name begins without them. It must be called after the Set
// that removed the service.
func (m *Monitor) Forget(service string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.past.services, service)
	maps.DeleteFunc(m.past.records, func(o origin, _ Remembered) bool { return o.service == service })
}

// past is the state before a restart, imported at a time.
type past struct {
	at       time.Time
	records  map[origin]Remembered
	services map[string]bool
}

// correct makes the records of a service agree with its data planes, so that these
// do not change. In panic mode the planes have all servers, so records of servers
// that are down stay.
func (p *past) correct(installed model.VirtualService, now time.Time) {
	asked := installed.Clone()
	asked.Reals = slices.DeleteFunc(asked.Reals, func(r model.RealServer) bool { return r.At(0) == installed.Sorry })
	for i := range asked.Reals {
		asked.Reals[i].State = model.RealUp
	}
	panics := Judge(asked, p.view(installed.Name)).Mode == ModePanic
	for _, r := range installed.Reals {
		key := origin{installed.Name, r.At(0)}
		one, known := p.records[key]
		up := r.State != model.RealDown
		if r.At(0) == installed.Sorry || known && up == (one.Record.State() != model.RealDown) || known && up &&
			panics {
			continue
		}
		p.records[key] = Remembered{installed.Name, key.real, cmp.Or(r.Endpoint, one.Endpoint),
			inherited(one.Record, up, settle(installed.Check), now)}
	}
}

// inherited returns the record of a server whose state in the data plane differs
// from its old record r.
func inherited(r Record, up bool, s settings, now time.Time) Record {
	r = Record{Up: up, Known: true, Since: now, Ejections: r.Ejections, Cause: "state before the daemon's restart"}
	if !up && !s.checked { // clients' failures took it down
		r.Ejected, r.Until = now, now.Add(hold(r.Ejections))
		r.Ejections++
	}
	return r
}

// at returns a stored record for this moment. The host's clock may have been set back
// since: no event is later than now, and no ejection lasts longer than it may.
func (r Record) at(now time.Time) Record {
	for _, t := range []*time.Time{&r.Since, &r.Growing, &r.Window, &r.Ejected} {
		if t.After(now) {
			*t = now
		}
	}
	if last := now.Add(hold(r.Ejections)); r.Until.After(last) {
		r.Until = last
	}
	return r
}

// view returns the View of a service's records.
func (p *past) view(service string) View {
	return func(r model.RealServer) (Condition, bool) {
		one, known := p.records[origin{service, r.At(0)}]
		return Condition{State: one.Record.State(), Share: 100}, known
	}
}

// keep stores the record of a server that is no longer Set, because it may be Set
// again.
func (p *past) keep(one Remembered, now time.Time) {
	if now.Sub(p.at) < remembers {
		p.records[origin{one.Service, one.Real}] = one
	}
}

// take returns and removes the record of a service's real server.
func (p *past) take(service string, r model.RealServer, now time.Time) (Record, bool) {
	if now.Sub(p.at) >= remembers {
		*p = past{}
	}
	key := origin{service, r.At(0)}
	one, ok := p.records[key]
	if !ok || replaced(one.Endpoint, r.Endpoint) {
		return Record{}, false
	}
	delete(p.records, key)
	return one.Record, true
}

// had reports whether a service existed before the restart.
func (p *past) had(service string, now time.Time) bool {
	return now.Sub(p.at) < remembers && p.services[service]
}
