package daemon

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/health"
	"fairlead/internal/kernel"
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
	// PlaneInUse is the plane that was chosen.
	PlaneInUse model.Plane   `json:"planeInUse,omitempty"`
	Status     ServiceStatus `json:"status"`
	// Problem says why it is not applied, or what of it is not.
	Problem string `json:"problem,omitempty"`
	// FastPath are the links whose drivers send packets on by themselves, or may
	// not; only for one service that is asked for.
	FastPath []kernel.FastLink `json:"fastPath,omitempty"`
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
	Endpoint string `json:"endpoint,omitempty"`
	Selected string `json:"selected,omitempty"`
	// State is what its plane makes of it, and Cause why.
	State Standing `json:"state"`
	Cause string   `json:"cause,omitempty"`
	// Since is when it came to be so.
	Since time.Time `json:"since"`
	// Deadline ends its drain, if it has one.
	Deadline time.Time `json:"deadline,omitzero"`
	// Until is when it is tried again, where clients' failures took it down and
	// nothing checks it.
	Until time.Time `json:"until,omitzero"`
	// Leaving says that it goes when its drain ends.
	Leaving bool `json:"leaving,omitempty"`
	// Checked is when it was checked last, Found what that found in Latency: the
	// State follows when its plane has been told.
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
	for _, v := range d.desired.Services {
		if len(names) == 0 || slices.Contains(names, v.Name) {
			all = append(all, d.viewService(v, on[v.Name]))
		}
	}
	slices.SortFunc(all, byServiceName)
	return all
}

func (d *Daemon) viewService(v model.VirtualService, on model.Plane) ServiceView {
	s := ServiceView{VirtualService: v.Clone(), PlaneInUse: on, Problem: d.problems[serviceProblem(v.Name)], Servers: []RealView{}}
	p := d.services.pools[v.Name]
	if s.Problem != "" || p == nil {
		s.Status = ServiceFailed
		return s
	}
	s.Status, s.Problem = p.status(), d.services.stuck[v.Name]
	checks := map[netip.AddrPort]health.ServerStatus{}
	for _, c := range d.health.StatusOf(p.resolved).Servers {
		checks[c.Real] = c
	}
	for _, m := range p.members {
		if s.Status != ServiceSorry || m.at != v.Sorry {
			s.Servers = append(s.Servers, d.viewMember(v, m, checks[m.at]))
		}
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

// stateOf is how a member stands with the planes.
type stateOf struct {
	State Standing
	Cause string
	Since time.Time
	// Share of its weight that it has, in percent.
	Share int
	// Until is as in RealView.
	Until time.Time
	// doubted says that it is used though its checks fail.
	doubted bool
}

// show says how a member stands: what its administrator and its container want,
// what a check has found, and what is planned of it by both.
func (p *pool) show(m member, check health.ServerStatus, planned model.RealState) stateOf {
	s := stateOf{State: m.standing, Cause: m.cause, Since: m.since, Share: check.Share}
	later := check.Since
	if p.since.After(later) {
		later = p.since
	}
	switch {
	case planned == model.RealDown && check.State == model.RealDown && (m.standing == "" || m.standing == RealDraining):
		s.State, s.Cause, s.Since, s.Until = RealDown, check.Cause, check.Since, check.Until
	case m.standing != "":
	case planned == model.RealDraining && check.State == model.RealDraining:
		s.State, s.Cause, s.Since = RealDraining, check.Cause, check.Since
	case planned == model.RealDraining:
		s.State, s.Cause, s.Since = RealDraining, "the sorry server is used: "+p.quorumText(), later
	case check.State == model.RealDown:
		s.State, s.Cause, s.Since, s.Share, s.doubted = RealUp, "used in a panic, though down: "+check.Cause, later, 100, true
	default:
		s.State, s.Since = RealUp, check.Since
		if check.Cause != added {
			s.Cause = check.Cause
		}
	}
	return s
}

// viewMember says how a member is: what the planes make of it, and what its last
// check has found, of which they may not know yet.
func (d *Daemon) viewMember(v model.VirtualService, m member, check health.ServerStatus) RealView {
	key := realKey{v.Name, m.at}
	r := RealView{Address: m.at.Addr(), Port: m.at.Port(), Weight: m.Weight, Share: m.shown.Share, Endpoint: m.Endpoint, State: m.shown.State, Cause: m.shown.Cause, Since: m.shown.Since, Until: m.shown.Until,
		Leaving: m.leaving, Checked: check.Checked, Found: check.Detail, Latency: check.Latency, Flows: d.flowsOf(key)}
	if !m.spec.Select.IsZero() {
		r.Selected = m.spec.String()
	}
	if drain := d.services.drains[key]; drain != nil && r.State == RealDraining {
		r.Deadline = drain.Deadline
	}
	if r.State == RealDown && check.State == model.RealDown && check.Checked.After(r.Since) && !check.Void && !strings.Contains(r.Cause, check.Detail) {
		r.Cause += "; last check: " + check.Detail // what fails now need not be what failed first
	}
	if check.Void && v.Check.Checks() && r.State == RealUp && r.Cause == "" {
		r.Cause = check.Detail // up, but not since anybody has seen it so
	}
	return r
}
