package daemon

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/health"
	"fairlead/internal/model"
)

// viewServices returns the services with these names, or all if there are none, sorted
// by name.
func (d *Daemon) viewServices(names ...string) []api.ServiceView {
	on := map[string]model.Plane{}
	for _, v := range d.full.Services {
		on[v.Name] = v.Plane
	}
	all := []api.ServiceView{}
	for _, v := range d.desired.Services {
		if len(names) == 0 || slices.Contains(names, v.Name) {
			all = append(all, d.viewService(v, on[v.Name]))
		}
	}
	slices.SortFunc(all, byServiceName)
	return all
}

func (d *Daemon) viewService(v model.VirtualService, on model.Plane) api.ServiceView {
	s := api.ServiceView{VirtualService: v.Clone(), PlaneInUse: on, Problem: d.problems[serviceProblem(v.Name)], Servers: []api.RealView{}}
	p := d.services.pools[v.Name]
	if s.Problem != "" || p == nil {
		s.Status = api.ServiceFailed
		return s
	}
	s.Status, s.Problem = p.status(), d.services.stuck[v.Name]
	checks := map[netip.AddrPort]health.ServerStatus{}
	for _, c := range d.health.StatusOf(p.resolved).Servers {
		checks[c.Real] = c
	}
	for _, m := range p.members {
		if s.Status != api.ServiceSorry || m.at != v.Sorry {
			s.Servers = append(s.Servers, d.viewMember(v, m, checks[m.at]))
		}
	}
	if s.Status == api.ServiceSorry {
		s.Servers = append(s.Servers, api.RealView{Address: v.Sorry.Addr(), Port: v.Sorry.Port(), Weight: 1, Share: 100, State: api.RealSorry, Cause: p.quorumText(), Since: p.since,
			Flows: d.flowsOf(realKey{v.Name, v.Sorry})})
	}
	slices.SortStableFunc(s.Servers, func(a, b api.RealView) int { return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port)) })
	return s
}

func (p *pool) status() api.ServiceStatus {
	switch {
	case p.health.Mode == health.ModePanic:
		return api.ServicePanics
	case p.health.Mode == health.ModeSorry:
		return api.ServiceSorry
	case p.quorum():
		return api.ServiceUp
	}
	return api.ServiceDown
}

// added is the cause that package health gives to a new real server. It is not shown.
const added = "added"

// memberState is the state of a member in the data planes.
type memberState struct {
	State api.RealStatus
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
	case planned == model.RealDown && check.State == model.RealDown && (m.status == "" || m.status == api.RealDraining):
		s.State, s.Cause, s.Since, s.Until = api.RealDown, check.Cause, check.Since, check.Until
	case m.status != "":
	case planned == model.RealDraining && check.State == model.RealDraining:
		s.State, s.Cause, s.Since = api.RealDraining, check.Cause, check.Since
	case planned == model.RealDraining:
		s.State, s.Cause, s.Since = api.RealDraining, "the sorry server is used: "+p.quorumText(), later
	case check.State == model.RealDown:
		s.State, s.Cause, s.Since, s.Share, s.doubted = api.RealUp, "used in a panic although down: "+check.Cause, later, 100, true
	default:
		s.State, s.Since = api.RealUp, check.Since
		if check.Cause != added {
			s.Cause = check.Cause
		}
	}
	return s
}

// viewMember returns the view of a member: its state in the data planes, and the
// result of its last check, which they may not have yet.
func (d *Daemon) viewMember(v model.VirtualService, m member, check health.ServerStatus) api.RealView {
	key := realKey{v.Name, m.at}
	r := api.RealView{Address: m.at.Addr(), Port: m.at.Port(), Weight: m.Weight, Share: m.shown.Share, Endpoint: m.Endpoint, State: m.shown.State, Cause: m.shown.Cause, Since: m.shown.Since, Until: m.shown.Until,
		Leaving: m.leaving, Checked: check.Checked, Found: check.Detail, Latency: check.Latency, Flows: d.flowsOf(key)}
	if !m.spec.Select.IsZero() {
		r.Selected = m.spec.String()
	}
	if drain := d.services.drains[key]; drain != nil && r.State == api.RealDraining {
		r.Deadline = drain.Deadline
	}
	if r.State == api.RealDown && check.State == model.RealDown && check.Checked.After(r.Since) && !check.Void && !strings.Contains(r.Cause, check.Detail) {
		r.Cause += "; last check: " + check.Detail // the cause may be an earlier failure
	}
	if check.Void && v.Check.Checks() && r.State == api.RealUp && r.Cause == "" {
		r.Cause = check.Detail // it counts as up, but no check has confirmed that
	}
	return r
}
