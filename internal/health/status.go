package health

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/model"
)

// ServiceStatus is what is known of a service.
type ServiceStatus struct {
	Service string `json:"service"`
	Pool
	Servers []ServerStatus `json:"servers"`
}

// ServerStatus is what is known of a real server.
type ServerStatus struct {
	// Real is the server as its service names it, with 0 for the port that the
	// client has dialled, and Endpoint the attachment that it is.
	Real     netip.AddrPort `json:"real"`
	Endpoint string         `json:"endpoint,omitempty"`
	// Condition is what the checks say; the administrator's word is the
	// service's.
	Condition
	Since time.Time `json:"since"`
	Cause string    `json:"cause"`
	// Until is when it is tried again, where clients' failures took it down and
	// nothing checks it.
	Until time.Time `json:"until,omitzero"`
	// Checked is when the last check ended, if there was one; the rest is what it
	// found.
	Checked time.Time     `json:"checked,omitzero"`
	OK      bool          `json:"ok,omitempty"`
	Void    bool          `json:"void,omitempty"`
	Detail  string        `json:"detail,omitempty"`
	Latency time.Duration `json:"latency,omitempty"`
}

// Status returns what is known of all services, by name, and of their real
// servers, by address.
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

// StatusOf returns what is known of one service, whose pool is summed up as it
// is given.
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
	all := ServiceStatus{Service: v.Name, Pool: Judge(v, of.view(now)), Servers: make([]ServerStatus, 0, len(of.servers))}
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
	return ServerStatus{Real: s.at, Endpoint: s.target.Endpoint, Condition: s.rec.condition(s.of.settings, now), Since: s.rec.Since, Cause: s.rec.Cause, Until: until,
		Checked: s.lastAt, OK: s.last.OK, Void: s.last.Void, Detail: s.last.Detail, Latency: s.last.Latency}
}

// Counters returns what has been done since the Monitor was made.
func (m *Monitor) Counters() Counters {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counters
	c.InFlight, c.Waiting = m.waiting.allUnder, m.waiting.len()
	return c
}
