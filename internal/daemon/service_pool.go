package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/health"
	"fairlead/internal/model"
)

// A pool is the state of a virtual service on this host.
//
// Theory of operation. A service names its real servers by address or by a selector. A
// pool has one member for each server that results, with what its administrator and
// its container require. Package health adds the results of the checks and what
// follows from all of these: states, weights, the sorry server.
//
//	service ──► members ──► resolved ──► health ──► full ──► State.Services
//	            ▲ attachments, drains
//
// A server that is no longer a member leaves: it drains. Computing a pool has no side
// effects, so a dry run can do it. Differences from the earlier pool are reported and
// saved when the data planes have them.
type pool struct {
	spec    model.VirtualService
	members []member
	// by has the index of the member at an address.
	by map[netip.AddrPort]int
	// resolved is the service with the members as its real servers. full is the
	// service as the data planes must have it.
	resolved, full model.VirtualService
	// health is the result of the checks when full was computed.
	health health.Pool
	// since is when the status began.
	since time.Time
	// restored says that the pool contains only what an earlier process has saved.
	restored bool
}

// member is a real server of a pool.
type member struct {
	// RealServer is the server as the data planes get it.
	model.RealServer
	// at is its address. Port 0 is the port that the client has connected to.
	at netip.AddrPort
	// spec is the entry of the service that the member results from.
	spec   model.RealServer
	status api.RealStatus
	cause  string
	since  time.Time
	// leaving says that the service no longer has this server.
	leaving bool
	// runsOn says that its container did not end when it was stopped.
	runsOn string
	// shown is its state in the data planes, with the checks' results at the time when
	// the pool was computed.
	shown memberState
}

// found is a sandbox that a selector has found, or that has an address.
type found struct {
	endpoint string
	at       netip.Addr
	// leaves is why its container must get no new flows; empty if it may.
	leaves string
	// runsOn says that its container did not end when it was stopped.
	runsOn string
}

// poolInputs are the inputs of a pool's computation, besides the service.
type poolInputs struct {
	now time.Time
	// selects returns the sandboxes that a selector finds, in one address family.
	selects func(model.Select, bool) []found
	// owns returns the sandbox that has the address.
	owns func(netip.Addr) (found, bool)
	// alive reports whether an endpoint exists.
	alive func(endpoint string) bool
	drain func(netip.AddrPort) *Drain
}

// newPool computes the pool of a service. before is the earlier pool, or nil.
func newPool(v model.VirtualService, before *pool, a poolInputs) *pool {
	p := &pool{spec: v}
	seen := map[netip.AddrPort]bool{}
	for _, r := range v.Reals {
		for _, f := range a.find(v, r) {
			m := member{RealServer: r, spec: r, at: netip.AddrPortFrom(f.at, r.Port)}
			m.Address, m.Select, m.Endpoint = f.at, model.Select{}, f.endpoint
			if seen[m.at] {
				continue
			}
			seen[m.at] = true
			m.setState(before, f, a)
			p.members = append(p.members, m)
		}
	}
	if before != nil {
		p.addLeaving(before, seen, a)
	}
	p.index()
	p.resolved = v
	p.resolved.Reals = p.reals()
	return p
}

func (p *pool) index() {
	p.by = make(map[netip.AddrPort]int, len(p.members))
	for i, m := range p.members {
		p.by[m.at] = i
	}
}

// find returns the servers that an entry of the service stands for.
func (a poolInputs) find(v model.VirtualService, r model.RealServer) []found {
	if r.Select.IsZero() {
		f, _ := a.owns(r.Address)
		f.at = r.Address
		return []found{f}
	}
	return a.selects(r.Select, v.Addresses[0].Is4())
}

// setState sets the state that the administrator, a drain or the container requires.
func (m *member) setState(before *pool, f found, a poolInputs) {
	m.State, m.runsOn = model.RealUp, f.runsOn
	d, why := a.drain(m.at), m.leaves(f)
	switch {
	case m.spec.State == model.RealDown:
		m.set(api.RealDisabled, "its configured state is down", a.now)
		if was := before.member(m.at); was != nil && was.status == m.status {
			m.since = was.since
		}
	case d != nil && !d.Ended.IsZero() && (d.Asked || why != ""):
		m.set(api.RealDrained, d.Cause, d.Ended)
	case d != nil && (d.Asked || why != ""):
		m.set(api.RealDraining, d.Cause, d.Since)
	case why != "":
		m.set(api.RealDraining, why, a.now)
	}
}

func (m *member) set(s api.RealStatus, cause string, since time.Time) {
	m.status, m.cause, m.since = s, cause, since
	switch s {
	case api.RealDraining:
		m.State = model.RealDraining
	case api.RealDrained, api.RealDisabled:
		m.State = model.RealDown
	}
}

// leaves returns why a member that still exists must drain, or empty.
func (m *member) leaves(f found) string {
	if m.spec.State == model.RealDraining {
		return "its configured state is draining"
	}
	return f.leaves
}

// addLeaving adds the members of the earlier pool that are no longer members and may
// have open flows.
func (p *pool) addLeaving(before *pool, stays map[netip.AddrPort]bool, a poolInputs) {
	for _, m := range before.members {
		d := a.drain(m.at)
		switch {
		case stays[m.at], before.ended(m.at), m.Endpoint != "" && !a.alive(m.Endpoint), d != nil && !d.Ended.IsZero(),
			m.Address.Is4() != p.spec.Addresses[0].Is4():
			continue
		case !m.leaving:
			m.leaving = true
			if m.status != api.RealDraining {
				m.set(api.RealDraining, "it was taken out of the service", a.now)
			}
		}
		p.members = append(p.members, m)
	}
	if !slices.ContainsFunc(p.members, isLeaving) {
		return
	}
	trial := p.spec
	if trial.Reals = p.reals(); trial.Validate() != nil { // e.g. the service no longer has its port
		p.members = slices.DeleteFunc(p.members, isLeaving)
	}
}

func isLeaving(m member) bool { return m.leaving }

// ended reports whether the data planes have no flows of a member.
func (p *pool) ended(at netip.AddrPort) bool {
	i := slices.IndexFunc(p.full.Reals, func(r model.RealServer) bool { return r.At(0) == at })
	return i < 0 || p.full.Reals[i].State == model.RealDown
}

func (p *pool) reals() []model.RealServer {
	all := make([]model.RealServer, len(p.members))
	for i, m := range p.members {
		all[i] = m.RealServer
	}
	return all
}

// member returns the member with that address, or nil.
func (p *pool) member(at netip.AddrPort) *member {
	if p == nil {
		return nil
	}
	if i, there := p.by[at]; there {
		return &p.members[i]
	}
	return nil
}

// text returns the member's address as users type it.
func (m member) text() string {
	return model.RealServer{Address: m.at.Addr(), Port: m.at.Port()}.String()
}

// quorum reports whether enough real servers are up. It is always true if another host
// balances the service (ForwardLocal).
func (p *pool) quorum() bool {
	return p.spec.Forward == model.ForwardLocal || p.health.Up >= max(1, p.spec.Quorum)
}

// quorumText says how many real servers are up, and how many must be.
func (p *pool) quorumText() string {
	return fmt.Sprintf("%d of %d real servers are up, and %d must be", p.health.Up, p.health.Of, max(1, p.spec.Quorum))
}
