package daemon

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/health"
	"fairlead/internal/model"
)

// ServiceStatus says how a virtual service is.
type ServiceStatus string

// The states of a virtual service.
const (
	// ServiceUp has its quorum.
	ServiceUp ServiceStatus = "up"
	// ServiceDown has too few real servers that are up.
	ServiceDown ServiceStatus = "down"
	// ServiceSorry has too few, and sends clients to its sorry server.
	ServiceSorry ServiceStatus = "sorry"
	// ServicePanics has so few that it uses them all.
	ServicePanics ServiceStatus = "panic"
	// ServiceFailed could not be applied.
	ServiceFailed ServiceStatus = "failed"
)

// ServiceView is a virtual service as it is.
type ServiceView struct {
	// VirtualService is as it was asked for.
	model.VirtualService
	// On is the plane that was chosen.
	On      model.Plane   `json:"on,omitempty"`
	Status  ServiceStatus `json:"status"`
	Problem string        `json:"problem,omitempty"`
	// Servers are the real servers that there are.
	Servers []RealView `json:"servers"`
}

// RealView is a real server as it is.
type RealView struct {
	// Address and Port are where it is; port 0 is what the client has dialled.
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port,omitempty"`
	// Weight is what was asked for, and Share how much of it the server has, in
	// percent: less than all while it starts slowly, or its agent says so.
	Weight int `json:"weight"`
	Share  int `json:"share"`
	// Endpoint is the attachment that it is, and Selected what has found that.
	Endpoint string   `json:"endpoint,omitempty"`
	Selected string   `json:"selected,omitempty"`
	State    Standing `json:"state"`
	Cause    string   `json:"cause,omitempty"`
	// Since is when it came to be so.
	Since time.Time `json:"since"`
	// Deadline ends its drain, if it has one.
	Deadline time.Time `json:"deadline,omitzero"`
	// Leaving says that it goes when its drain ends.
	Leaving bool `json:"leaving,omitempty"`
	// Checked is when it was checked last, Found what that found in Latency.
	Checked time.Time     `json:"checked,omitzero"`
	Found   string        `json:"found,omitempty"`
	Latency time.Duration `json:"latency,omitempty"`
	// Flows are those that it has; nil where the plane does not count.
	Flows *uint64 `json:"flows,omitempty"`
}

// viewServices returns those of the names, all for none, by name.
func (d *Daemon) viewServices(names ...string) []ServiceView {
	on := map[string]model.Plane{}
	for _, v := range d.full.Services {
		on[v.Name] = v.Plane
	}
	all := []ServiceView{}
	for _, v := range d.wishes.Services {
		if len(names) == 0 || slices.Contains(names, v.Name) {
			all = append(all, d.viewService(v, on[v.Name]))
		}
	}
	slices.SortFunc(all, byServiceName)
	return all
}

func (d *Daemon) viewService(v model.VirtualService, on model.Plane) ServiceView {
	s := ServiceView{VirtualService: v.Clone(), On: on, Problem: d.problems[serviceProblem(v.Name)], Servers: []RealView{}}
	p := d.services.pools[v.Name]
	if s.Problem != "" || p == nil {
		s.Status = ServiceFailed
		return s
	}
	s.Status = p.status()
	checks := map[netip.AddrPort]health.ServerStatus{}
	for _, c := range d.health.StatusOf(p.resolved).Servers {
		checks[c.Real] = c
	}
	for _, m := range p.members {
		s.Servers = append(s.Servers, d.viewMember(v, m, checks[m.at]))
	}
	if s.Status == ServiceSorry {
		s.Servers = append(s.Servers, RealView{Address: v.Sorry.Addr(), Port: v.Sorry.Port(), Weight: 1, Share: 100, State: RealSorry, Cause: p.quorumText(), Since: p.since,
			Flows: d.flowsOf(realKey{v.Name, v.Sorry})})
	}
	slices.SortStableFunc(s.Servers, func(a, b RealView) int { return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port)) })
	return s
}

func (p *pool) status() ServiceStatus {
	switch {
	case p.health.Mode == health.ModePanic:
		return ServicePanics
	case p.health.Mode == health.ModeSorry:
		return ServiceSorry
	case p.quorum():
		return ServiceUp
	}
	return ServiceDown
}

// added is the cause of package health that is none.
const added = "added"

func (d *Daemon) viewMember(v model.VirtualService, m member, check health.ServerStatus) RealView {
	key := realKey{v.Name, m.at}
	r := RealView{Address: m.at.Addr(), Port: m.at.Port(), Weight: m.Weight, Share: check.Share, Endpoint: m.Endpoint, State: m.standing, Cause: m.cause, Since: m.since,
		Leaving: m.leaving, Checked: check.Checked, Found: check.Detail, Latency: check.Latency, Flows: d.flowsOf(key)}
	switch {
	case m.standing == "" && check.State == model.RealDown || m.standing == RealDraining && check.State == model.RealDown:
		r.State, r.Cause, r.Since = RealDown, check.Cause, check.Since
	case m.standing == "" && check.State == model.RealDraining:
		r.State, r.Cause, r.Since = RealDraining, check.Cause, check.Since
	case m.standing == "":
		r.State, r.Since = RealUp, check.Since
		if v.Check.Checks() && check.Cause != added {
			r.Cause = check.Cause
		}
	}
	if !m.wish.Select.IsZero() {
		r.Selected = m.wish.String()
	}
	if drain := d.services.drains[key]; drain != nil && r.State == RealDraining {
		r.Deadline = drain.Deadline
	}
	return r
}
