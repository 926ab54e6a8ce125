package health

import (
	"slices"
	"time"

	"fairlead/internal/model"
)

// StatusOf returns what is known of one service, which may be otherwise than it
// was Set: of real servers that are not checked nothing is known.
func (m *Monitor) StatusOf(v model.VirtualService) ServiceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	of, now := m.services[v.Name], time.Now()
	if of == nil {
		of = &service{}
	}
	one := ServiceStatus{Service: v.Name, Pool: Judge(v, of.view(now)), Servers: make([]ServerStatus, 0, len(of.servers))}
	for _, s := range of.servers {
		one.Servers = append(one.Servers, s.status(now))
	}
	slices.SortFunc(one.Servers, func(a, b ServerStatus) int { return a.Real.Compare(b.Real) })
	return one
}
