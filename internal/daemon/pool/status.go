package pool

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/health"
	"fairlead/internal/model"
)

// Status returns the state of the service.
func (p *Pool) Status() api.ServiceStatus {
	switch {
	case p.Health.Mode == health.ModePanic:
		return api.ServicePanics
	case p.Health.Mode == health.ModeSorry:
		return api.ServiceSorry
	case p.Quorum():
		return api.ServiceUp
	}
	return api.ServiceDown
}

// show returns the state of a member. It combines what its administrator and its
// container require, the result of its checks, and the planned state.
func (p *Pool) show(m Member, check health.ServerStatus, planned model.RealState) Shown {
	s := Shown{State: m.Status, Cause: m.Cause, Since: m.Since, Share: check.Share}
	later := check.Since
	if p.Since.After(later) {
		later = p.Since
	}
	switch {
	case planned == model.RealDown && check.State == model.RealDown && (m.Status == "" || m.Status == api.RealDraining):
		s.State, s.Cause, s.Since, s.Until = api.RealDown, check.Cause, check.Since, check.Until
	case m.Status != "":
	case planned == model.RealDraining && check.State == model.RealDraining:
		s.State, s.Cause, s.Since = api.RealDraining, check.Cause, check.Since
	case planned == model.RealDraining:
		s.State, s.Cause, s.Since = api.RealDraining, "the sorry server is used: "+p.QuorumText(), later
	case check.State == model.RealDown:
		s.State, s.Cause, s.Since, s.Share, s.Doubted = api.RealUp, "used in a panic although down: "+check.Cause,
			later, 100, true
	default:
		s.State, s.Since = api.RealUp, check.Since
		if check.Cause != added {
			s.Cause = check.Cause
		}
	}
	return s
}

// View returns the view of a member: its state in the data planes, and the
// result of its last check, which they may not have yet. drain is its drain or nil, and
// flows its number of open flows or nil.
func (p *Pool) View(m Member, check health.ServerStatus, drain *Drain, flows *uint64) api.RealView {
	r := api.RealView{Address: m.At.Addr(), Port: m.At.Port(), Weight: m.Weight, Share: m.Shown.Share,
		Endpoint: m.Endpoint,
		State:    m.Shown.State, Cause: m.Shown.Cause, Since: m.Shown.Since, Until: m.Shown.Until, Leaving: m.Leaving,
		Checked: check.Checked, Found: check.Detail, Latency: check.Latency, Flows: flows}
	if !m.Spec.Select.IsZero() {
		r.Selected = m.Spec.String()
	}
	if drain != nil && r.State == api.RealDraining {
		r.Deadline = drain.Deadline
	}
	if r.State == api.RealDown && check.State == model.RealDown && check.Checked.After(r.Since) && !check.Void &&
		!strings.Contains(r.Cause, check.Detail) {
		r.Cause += "; last check: " + check.Detail // the cause may be an earlier failure
	}
	if check.Void && p.Spec.Check.Checks() && r.State == api.RealUp && r.Cause == "" {
		r.Cause = check.Detail // it counts as up, but no check has confirmed that
	}
	return r
}

// Quorum reports whether enough real servers are up. It is always true if another host
// balances the service.
func (p *Pool) Quorum() bool {
	return !p.Spec.Balances() || p.Health.Up >= max(1, p.Spec.Quorum)
}

// QuorumText says how many real servers are up, and how many must be.
func (p *Pool) QuorumText() string {
	return fmt.Sprintf("%d of %d real servers are up, and %d must be", p.Health.Up, p.Health.Of, max(1, p.Spec.Quorum))
}

// Complete adds to a pool the results of the checks: the service as they make it, and
// their state (health.Monitor.Effective).
func (p *Pool) Complete(full model.VirtualService, status health.ServiceStatus, before *Pool, now time.Time) {
	p.Full, p.Health = full, status.Pool
	found := make(map[netip.AddrPort]health.ServerStatus, len(status.Servers))
	for _, s := range status.Servers {
		found[s.Real] = s
	}
	if p.Since = now; before != nil && before.Status() == p.Status() {
		p.Since = before.Since
	}
	planned := make(map[netip.AddrPort]model.RealState, len(p.Full.Reals))
	for i, r := range p.Full.Reals {
		// A server that drains and is down does not answer its flows.
		if r.State == model.RealDraining && found[r.At(0)].State == model.RealDown {
			p.Full.Reals[i].State = model.RealDown
		}
		planned[r.At(0)] = p.Full.Reals[i].State
	}
	for i := range p.Members {
		m := &p.Members[i]
		m.Shown = p.show(*m, found[m.At], planned[m.At])
	}
}
