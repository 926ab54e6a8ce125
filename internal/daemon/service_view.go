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

// ServiceStatus is the state of a virtual service.
type ServiceStatus string

// The states of a virtual service.
const (
	// ServiceUp has its quorum.
	ServiceUp ServiceStatus = "up"
	// ServiceDown has fewer real servers up than its quorum.
	ServiceDown ServiceStatus = "down"
	// ServiceSorry has fewer than its quorum, and sends clients to its sorry server.
	ServiceSorry ServiceStatus = "sorry"
	// ServicePanics has so few servers up that it uses all of them.
	ServicePanics ServiceStatus = "panic"
	// ServiceFailed could not be applied.
	ServiceFailed ServiceStatus = "failed"
)

// ServiceView is a virtual service with its state.
type ServiceView struct {
	// VirtualService is the desired service.
	model.VirtualService
	// PlaneInUse is the data plane that the daemon chose.
	PlaneInUse model.Plane   `json:"planeInUse,omitempty"`
	Status     ServiceStatus `json:"status"`
	// Problem says why the service, or a part of it, is not applied.
	Problem string `json:"problem,omitempty"`
	// FastPath are the links with the fast path, or where the driver refuses it. Only
	// Service sets it.
	FastPath []kernel.FastLink `json:"fastPath,omitempty"`
	// Servers are the current real servers.
	Servers []RealView `json:"servers"`
}

// RealView is a real server with its state.
type RealView struct {
	// Address and Port are the server's. Port 0 is the port that the client has
	// connected to.
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port,omitempty"`
	// Weight is the desired weight. Share is the percentage of it that the server has
	// now: less than 100 during a slow start, or if its agent reports less.
	Weight int `json:"weight"`
	Share  int `json:"share"`
	// Endpoint is the server's attachment, and Selected the selector that has found
	// it.
	Endpoint string `json:"endpoint,omitempty"`
	Selected string `json:"selected,omitempty"`
	// State is its state in the data plane, and Cause the reason.
	State RealStatus `json:"state"`
	Cause string     `json:"cause,omitempty"`
	// Since is when this state began.
	Since time.Time `json:"since"`
	// Deadline is the end of its drain, if it has one.
	Deadline time.Time `json:"deadline,omitzero"`
	// Until is the time at which a server gets clients again that passive checks have
	// taken out. It is set only if the server has no active check.
	Until time.Time `json:"until,omitzero"`
	// Leaving says that the server is removed when its drain ends.
	Leaving bool `json:"leaving,omitempty"`
	// Checked is the time of the last check, Found its result, and Latency its
	// duration. State follows when the data plane has the change.
	Checked time.Time     `json:"checked,omitzero"`
	Found   string        `json:"found,omitempty"`
	Latency time.Duration `json:"latency,omitempty"`
	// Flows is the number of open flows; nil if the data plane does not count them.
	Flows *uint64 `json:"flows,omitempty"`
}

// viewServices returns the services with these names, or all if there are none, sorted
// by name.
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

// added is the cause that package health gives to a new real server. It is not shown.
const added = "added"

// memberState is the state of a member in the data planes.
type memberState struct {
	State RealStatus
	Cause string
	Since time.Time
	// Share is the percentage of its weight that it has.
	Share int
	// Until is as in RealView.
	Until time.Time
	// doubted says that it is used although its checks fail.
	doubted bool
}

// show returns the state of a member. It combines what its administrator and its
// container require, the result of its checks, and the planned state.
func (p *pool) show(m member, check health.ServerStatus, planned model.RealState) memberState {
	s := memberState{State: m.status, Cause: m.cause, Since: m.since, Share: check.Share}
	later := check.Since
	if p.since.After(later) {
		later = p.since
	}
	switch {
	case planned == model.RealDown && check.State == model.RealDown && (m.status == "" || m.status == RealDraining):
		s.State, s.Cause, s.Since, s.Until = RealDown, check.Cause, check.Since, check.Until
	case m.status != "":
	case planned == model.RealDraining && check.State == model.RealDraining:
		s.State, s.Cause, s.Since = RealDraining, check.Cause, check.Since
	case planned == model.RealDraining:
		s.State, s.Cause, s.Since = RealDraining, "the sorry server is used: "+p.quorumText(), later
	case check.State == model.RealDown:
		s.State, s.Cause, s.Since, s.Share, s.doubted = RealUp, "used in a panic although down: "+check.Cause, later, 100, true
	default:
		s.State, s.Since = RealUp, check.Since
		if check.Cause != added {
			s.Cause = check.Cause
		}
	}
	return s
}

// viewMember returns the view of a member: its state in the data planes, and the
// result of its last check, which they may not have yet.
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
		r.Cause += "; last check: " + check.Detail // the cause may be an earlier failure
	}
	if check.Void && v.Check.Checks() && r.State == RealUp && r.Cause == "" {
		r.Cause = check.Detail // it counts as up, but no check has confirmed that
	}
	return r
}
