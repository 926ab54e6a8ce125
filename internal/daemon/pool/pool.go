// Package pool computes which real servers a virtual service has on this host, and in
// which state they are. Its functions are pure: the daemon gives them what it knows of
// sandboxes, containers, drains and checks, and applies and reports the result.
package pool

import (
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
// Pool has one member for each server that results, with what its administrator and
// its container require. Package health adds the results of the checks and what
// follows from all of these: states, weights, the sorry server.
//
//	service ──► members ──► resolved ──► health ──► full ──► State.Services
//	            ▲ attachments, drains
//
// A server that is no longer a member leaves: it drains. Computing a pool has no side
// effects, so a dry run can do it. Differences from the earlier pool are reported and
// saved when the data planes have them.
type Pool struct {
	Spec    model.VirtualService
	Members []Member
	// by has the index of the member at an address.
	by map[netip.AddrPort]int
	// Resolved is the service with the members as its real servers. full is the
	// service as the data planes must have it.
	Resolved, Full model.VirtualService
	// Health is the result of the checks when full was computed.
	Health health.Pool
	// Since is when the status began.
	Since time.Time
	// Restored says that the pool contains only what an earlier process has saved.
	Restored bool
}

// Member is a real server of a pool.
type Member struct {
	// RealServer is the server as the data planes get it.
	model.RealServer
	// At is its address. Port 0 is the port that the client has connected to.
	At netip.AddrPort
	// Spec is the entry of the service that the member results from.
	Spec   model.RealServer
	Status api.RealStatus
	Cause  string
	Since  time.Time
	// Leaving says that the service no longer has this server.
	Leaving bool
	// RunsOn says that its container did not end when it was stopped.
	RunsOn string
	// Shown is its state in the data planes, with the checks' results at the time when
	// the pool was computed.
	Shown Shown
}

// added is the cause that package health gives to a new real server. It is not shown.
const added = "added"

// Shown is the state of a member in the data planes.
type Shown struct {
	State api.RealStatus
	Cause string
	Since time.Time
	// Share is the percentage of its weight that it has.
	Share int
	// Until is as in RealView.
	Until time.Time
	// Doubted says that it is used although its checks fail.
	Doubted bool
}

// Found is a sandbox that a selector has found, or that has an address.
type Found struct {
	Endpoint string
	// Sandbox is the reference of the sandbox, which can have several endpoints.
	Sandbox string
	At      netip.Addr
	// Leaves is why its container must get no new flows; empty if it may.
	Leaves string
	// RunsOn says that its container did not end when it was stopped.
	RunsOn string
	// Health is the result of the engine's health check; empty if there is none.
	Health string
}

// Inputs are the inputs of a pool's computation, besides the service.
type Inputs struct {
	Now time.Time
	// Selects returns the sandboxes that a selector finds, in one address family.
	Selects func(model.Select, bool) []Found
	// Owns returns the sandbox that has the address.
	Owns func(netip.Addr) (Found, bool)
	// Alive reports whether an endpoint exists.
	Alive func(endpoint string) bool
	Drain func(netip.AddrPort) *Drain
}

// New computes the pool of a service. before is the earlier pool, or nil.
func New(v model.VirtualService, before *Pool, a Inputs) *Pool {
	p := &Pool{Spec: v}
	seen := map[netip.AddrPort]bool{}
	for _, r := range v.Reals {
		for _, f := range a.find(v, r) {
			m := Member{RealServer: r, Spec: r, At: netip.AddrPortFrom(f.At, r.Port)}
			m.Address, m.Select, m.Endpoint = f.At, model.Select{}, f.Endpoint
			if seen[m.At] {
				continue
			}
			seen[m.At] = true
			m.setState(before, f, a)
			p.Members = append(p.Members, m)
		}
	}
	if before != nil {
		p.addLeaving(before, seen, a)
	}
	p.index()
	p.Resolved = v
	p.Resolved.Reals = p.reals()
	return p
}

func (p *Pool) index() {
	p.by = make(map[netip.AddrPort]int, len(p.Members))
	for i, m := range p.Members {
		p.by[m.At] = i
	}
}

// find returns the servers that an entry of the service stands for.
func (a Inputs) find(v model.VirtualService, r model.RealServer) []Found {
	if r.Select.IsZero() {
		f, _ := a.Owns(r.Address)
		f.At = r.Address
		return []Found{f}
	}
	return a.Selects(r.Select, v.Addresses[0].Is4())
}

// setState sets the state that the administrator, a drain or the container requires.
func (m *Member) setState(before *Pool, f Found, a Inputs) {
	m.State, m.RunsOn = model.RealUp, f.RunsOn
	d, why := a.Drain(m.At), m.leaves(f)
	switch {
	case m.Spec.State == model.RealDown:
		m.set(api.RealDisabled, "its configured state is down", a.Now)
		if was := before.Member(m.At); was != nil && was.Status == m.Status {
			m.Since = was.Since
		}
	case d != nil && !d.Ended.IsZero() && (d.Asked || why != ""):
		m.set(api.RealDrained, d.Cause, d.Ended)
	case d != nil && (d.Asked || why != ""):
		m.set(api.RealDraining, d.Cause, d.Since)
	case why != "":
		m.set(api.RealDraining, why, a.Now)
	}
}

func (m *Member) set(s api.RealStatus, cause string, since time.Time) {
	m.Status, m.Cause, m.Since = s, cause, since
	switch s {
	case api.RealDraining:
		m.State = model.RealDraining
	case api.RealDrained, api.RealDisabled:
		m.State = model.RealDown
	}
}

// leaves returns why a member that still exists must drain, or empty.
func (m *Member) leaves(f Found) string {
	if m.Spec.State == model.RealDraining {
		return "its configured state is draining"
	}
	return f.Leaves
}

// addLeaving adds the members of the earlier pool that are no longer members and may
// have open flows.
func (p *Pool) addLeaving(before *Pool, stays map[netip.AddrPort]bool, a Inputs) {
	for _, m := range before.Members {
		d := a.Drain(m.At)
		switch {
		case stays[m.At], before.ended(m.At), m.Endpoint != "" && !a.Alive(m.Endpoint), d != nil && !d.Ended.IsZero(),
			m.Address.Is4() != p.Spec.Addresses[0].Is4():
			continue
		case !m.Leaving:
			m.Leaving = true
			if m.Status != api.RealDraining {
				m.set(api.RealDraining, "it was taken out of the service", a.Now)
			}
		}
		p.Members = append(p.Members, m)
	}
	if !slices.ContainsFunc(p.Members, isLeaving) {
		return
	}
	trial := p.Spec
	if trial.Reals = p.reals(); trial.Validate() != nil { // e.g. the service no longer has its port
		p.Members = slices.DeleteFunc(p.Members, isLeaving)
	}
}

func isLeaving(m Member) bool { return m.Leaving }

// ended reports whether the data planes have no flows of a member.
func (p *Pool) ended(at netip.AddrPort) bool {
	i := slices.IndexFunc(p.Full.Reals, func(r model.RealServer) bool { return r.At(0) == at })
	return i < 0 || p.Full.Reals[i].State == model.RealDown
}

func (p *Pool) reals() []model.RealServer {
	all := make([]model.RealServer, len(p.Members))
	for i, m := range p.Members {
		all[i] = m.RealServer
	}
	return all
}

// Member returns the member with that address, or nil.
func (p *Pool) Member(at netip.AddrPort) *Member {
	if p == nil {
		return nil
	}
	if i, there := p.by[at]; there {
		return &p.Members[i]
	}
	return nil
}

// Text returns the member's address as users type it.
func (m Member) Text() string {
	return model.RealServer{Address: m.At.Addr(), Port: m.At.Port()}.String()
}

// Answers reports whether the text is the member's address without its port, or with the
// port at which it gets packets of the service: a member without a port of its own gets
// them at the service's port, if the service has only one.
func (p *Pool) Answers(m Member, text string) bool {
	if m.At.Addr().String() == text {
		return true
	}
	at, err := netip.ParseAddrPort(text)
	return err == nil && m.At.Port() == 0 && at.Addr() == m.At.Addr() && len(p.Spec.Ports) == 1 &&
		p.Spec.Ports[0] == model.Port(at.Port())
}

// Without returns the pool without a member.
func (p *Pool) Without(at netip.AddrPort) *Pool {
	next := *p
	next.Members = slices.DeleteFunc(slices.Clone(p.Members), func(m Member) bool { return m.At == at })
	next.index()
	return &next
}

// Restore adds a member whose removal an earlier process has begun, to a pool that
// contains only such members. p is nil if there are none yet.
func (p *Pool) Restore(at netip.AddrPort, drain Drain) *Pool {
	if p == nil {
		p = &Pool{Restored: true}
	}
	p.Members = append(p.Members, Member{RealServer: drain.Real, At: at, Spec: drain.Real, Status: api.RealDraining,
		Cause: drain.Cause, Since: drain.Since, Leaving: true})
	p.Full.Reals = append(p.Full.Reals, drain.Real)
	p.index()
	return p
}
