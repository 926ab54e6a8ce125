package health

import (
	"cmp"
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
// were, rather than anew. It comes before the first Set.
func (m *Monitor) Import(all Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past = past{at: time.Now(), records: make(map[origin]Remembered, len(all)), services: map[string]bool{}}
	for _, one := range all {
		m.past.records[origin{one.Service, one.Real}] = one
		m.past.services[one.Service] = true
	}
}

// past is what was known at a time, before a restart.
type past struct {
	at       time.Time
	records  map[origin]Remembered
	services map[string]bool
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
