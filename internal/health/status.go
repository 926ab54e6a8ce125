package health

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/model"
)

// ServiceStatus is the status of a service and its servers.
type ServiceStatus struct {
	Service string `json:"service"`
	Pool
	Servers []ServerStatus `json:"servers"`
}

// ServerStatus is the status of a real server.
type ServerStatus struct {
	// Real is the server's address and port in the service, where port 0 is the port
	// that the client dialled. Endpoint is the attachment that the server is.
	Real     netip.AddrPort `json:"real"`
	Endpoint string         `json:"endpoint,omitempty"`
	// Condition follows from the checks. States that the administrator set are in
	// the service.
	Condition
	Since time.Time `json:"since"`
	Cause string    `json:"cause"`
	// Until is when the server gets clients again, if clients' failures took it down
	// and the service has no checks.
	Until time.Time `json:"until,omitzero"`
	// Checked is when the last check ended, zero if there was none. The other fields
	// are its result.
	Checked time.Time     `json:"checked,omitzero"`
	OK      bool          `json:"ok,omitempty"`
	Void    bool          `json:"void,omitempty"`
	Detail  string        `json:"detail,omitempty"`
	Latency time.Duration `json:"latency,omitempty"`
}

// Status returns the status of all services, sorted by name, with their real
// servers, sorted by address.
func (m *Monitor) Status() []ServiceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	all := make([]ServiceStatus, 0, len(m.services))
	for _, of := range m.services {
		all = append(all, of.status(of.v, now))
	}
	slices.SortFunc(all, func(a, b ServiceStatus) int { return strings.Compare(a.Service, b.Service) })
	return all
}

// StatusOf returns the status of one service. It computes the pool from v, and not
// from the service that was Set.
func (m *Monitor) StatusOf(v model.VirtualService) ServiceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.services[v.Name]
	if of == nil {
		of = &service{}
	}
	return of.status(v, time.Now())
}

func (of *service) status(v model.VirtualService, now time.Time) ServiceStatus {
	all := ServiceStatus{Service: v.Name, Pool: Judge(v, of.view(now)),
		Servers: make([]ServerStatus, 0, len(of.servers))}
	for _, s := range of.servers {
		all.Servers = append(all.Servers, s.status(now))
	}
	slices.SortFunc(all.Servers, func(a, b ServerStatus) int { return a.Real.Compare(b.Real) })
	return all
}

func (s *server) status(now time.Time) ServerStatus {
	var until time.Time
	if !s.rec.Up && !s.of.settings.checked {
		until = s.rec.Until
	}
	return ServerStatus{Real: s.at, Endpoint: s.target.Endpoint, Condition: s.rec.condition(s.of.settings, now),
		Since: s.rec.Since, Cause: s.rec.Cause, Until: until, Checked: s.lastAt, OK: s.last.OK, Void: s.last.Void,
		Detail: s.last.Detail, Latency: s.last.Latency}
}

// Counters returns the Monitor's counters since NewMonitor.
func (m *Monitor) Counters() Counters {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counters
	c.InFlight, c.Waiting = m.waiting.allRunning, m.waiting.len()
	return c
}
