package health

import (
	"time"

	"fairlead/internal/model"
)

// earlier is a server before a Try. With readapted, its record was adapted to another check.
type earlier struct {
	server    *server
	rec       Record
	readapted bool
}

// Try is Set for services that may turn out to be impossible: undo restores the services and servers as they were
// before, with their records. Servers that Try did not change keep what was found of them since.
func (m *Monitor) Try(services []model.VirtualService) (undo func(), err error) {
	before, servers := m.differing(services)
	err = m.Set(services)
	return func() {
		_ = m.Set(before) // an error was returned when these services were set first
		m.restore(servers, time.Now())
	}, err
}

// differing returns all services that are checked, and the servers of those that differ from the wanted ones.
func (m *Monitor) differing(want []model.VirtualService) (all []model.VirtualService, servers []earlier) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted := make(map[string]model.VirtualService, len(want))
	for _, v := range want {
		wanted[v.Name] = v
	}
	for name, of := range m.services {
		all = append(all, of.v)
		next, stays := wanted[name]
		if stays && of.v.Equal(next) {
			continue
		}
		for _, s := range of.servers {
			servers = append(servers, earlier{s, s.rec, stays && !of.v.Check.Equal(next.Check)})
		}
	}
	return all, servers
}

// restore gives servers that a Try had removed, or checked in another way, their earlier records.
func (m *Monitor) restore(servers []earlier, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, was := range servers {
		of := m.services[was.server.target.Service]
		if of == nil || of.servers[was.server.at] == nil {
			continue
		}
		if s := of.servers[was.server.at]; s != was.server || was.readapted {
			s.rec = was.rec
			m.plan(s, now)
		}
	}
}
