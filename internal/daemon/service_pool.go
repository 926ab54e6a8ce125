package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/health"
	"fairlead/internal/model"
)

// A pool is what a virtual service comes to on this host now.
//
// Theory of operation. A wish names real servers by their addresses or by what
// selects them. A pool has a member for each server that this leads to, with
// what its administrator and its container want of it; package health adds what
// the checks say, and what follows from all: states, weights, the sorry server.
//
//	wish ──► members ──► resolved ──► health ──► full ──► State.Services
//	         ▲ attachments, drains
//
// A server that was a member and is none any more leaves: it drains. To work a
// pool out changes nothing, so that a dry run can; what has changed against the
// pool before is told, and noted, when the planes have it.
type pool struct {
	spec    model.VirtualService
	members []member
	// by finds a member by where it is.
	by map[netip.AddrPort]int
	// resolved is the service with the members as its real servers, full as the
	// planes shall have it.
	resolved, full model.VirtualService
	// health is what the checks said when full was worked out.
	health health.Pool
	// since is when its status came to be.
	since time.Time
	// restored says that it is but what a process before has left.
	restored bool
}

// Standing says how a real server is.
type Standing string

// The standings. A member's is empty where the checks say it.
const (
	RealUp   Standing = "up"
	RealDown Standing = "down"
	// RealDraining keeps its flows, RealDrained has none left.
	RealDraining Standing = "draining"
	RealDrained  Standing = "drained"
	// RealDisabled was taken out by its administrator, flows and all.
	RealDisabled Standing = "disabled"
	// RealSorry is the sorry server, while it is used.
	RealSorry Standing = "sorry"
)

// member is a real server of a pool.
type member struct {
	// RealServer is as the planes get it.
	model.RealServer
	// at is where it is; port 0 is the one that the client has dialled.
	at netip.AddrPort
	// spec is what has led to it.
	spec     model.RealServer
	standing Standing
	cause    string
	since    time.Time
	// leaving says that nothing leads to it any more.
	leaving bool
	// runsOn says that its container did not end when it was stopped.
	runsOn string
	// shown is what the planes make of it, by what the checks said when the pool
	// was worked out.
	shown stateOf
}

// found is a sandbox that a selector has found, or that an address is of.
type found struct {
	endpoint string
	at       netip.Addr
	// leaves says why its container shall get no new flows, empty if it may.
	leaves string
	// runsOn says that it did not end when it was stopped.
	runsOn string
}

// inputsOf is what a pool is worked out from, besides the wish.
type inputsOf struct {
	now time.Time
	// selects returns what a selector finds, of the family of the service.
	selects func(model.Select, bool) []found
	// owns returns the sandbox that has the address.
	owns func(netip.Addr) (found, bool)
	// alive reports whether an endpoint is there.
	alive func(endpoint string) bool
	drain func(netip.AddrPort) *Drain
}

// work works the pool of a service out, given the one before, nil for none.
func work(v model.VirtualService, before *pool, a inputsOf) *pool {
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
		p.leaving(before, seen, a)
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

// find returns the servers that a real server of a wish leads to.
func (a inputsOf) find(v model.VirtualService, r model.RealServer) []found {
	if r.Select.IsZero() {
		f, _ := a.owns(r.Address)
		f.at = r.Address
		return []found{f}
	}
	return a.selects(r.Select, v.Addresses[0].Is4())
}

// setState says what is wanted of a member.
func (m *member) setState(before *pool, f found, a inputsOf) {
	m.State, m.runsOn = model.RealUp, f.runsOn
	d, why := a.drain(m.at), m.leaves(f)
	switch {
	case m.spec.State == model.RealDown:
		m.is(RealDisabled, "its administrator says so", a.now)
		if was := before.member(m.at); was != nil && was.standing == m.standing {
			m.since = was.since
		}
	case d != nil && !d.Ended.IsZero() && (d.Asked || why != ""):
		m.is(RealDrained, d.Cause, d.Ended)
	case d != nil && (d.Asked || why != ""):
		m.is(RealDraining, d.Cause, d.Since)
	case why != "":
		m.is(RealDraining, why, a.now)
	}
}

func (m *member) is(s Standing, cause string, since time.Time) {
	m.standing, m.cause, m.since = s, cause, since
	switch s {
	case RealDraining:
		m.State = model.RealDraining
	case RealDrained, RealDisabled:
		m.State = model.RealDown
	}
}

// leaves says why a member that is there shall drain, empty if it shall not.
func (m *member) leaves(f found) string {
	if m.spec.State == model.RealDraining {
		return "its administrator says so"
	}
	return f.leaves
}

// leaving adds those that were members, are none any more, and may have flows.
func (p *pool) leaving(before *pool, stays map[netip.AddrPort]bool, a inputsOf) {
	for _, m := range before.members {
		d := a.drain(m.at)
		switch {
		case stays[m.at], before.ended(m.at), m.Endpoint != "" && !a.alive(m.Endpoint), d != nil && !d.Ended.IsZero(),
			m.Address.Is4() != p.spec.Addresses[0].Is4():
			continue
		case !m.leaving:
			m.leaving = true
			if m.standing != RealDraining {
				m.is(RealDraining, "it was taken out of the service", a.now)
			}
		}
		p.members = append(p.members, m)
	}
	if !slices.ContainsFunc(p.members, isLeaving) {
		return
	}
	trial := p.spec
	if trial.Reals = p.reals(); trial.Validate() != nil { // e.g. its port is none of the service's now
		p.members = slices.DeleteFunc(p.members, isLeaving)
	}
}

func isLeaving(m member) bool { return m.leaving }

// ended reports whether the planes have nothing of a member's.
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

// member returns the member that is there, nil if none is.
func (p *pool) member(at netip.AddrPort) *member {
	if p == nil {
		return nil
	}
	if i, there := p.by[at]; there {
		return &p.members[i]
	}
	return nil
}

// text names where a member is, as users type it.
func (m member) text() string {
	return model.RealServer{Address: m.at.Addr(), Port: m.at.Port()}.String()
}

// quorum reports whether enough real servers are up, as far as they are ours.
func (p *pool) quorum() bool {
	return p.spec.Forward == model.ForwardLocal || p.health.Up >= max(1, p.spec.Quorum)
}

// quorumText says how many of a pool are up and must be.
func (p *pool) quorumText() string {
	return fmt.Sprintf("%d of %d real servers are up, and %d must be", p.health.Up, p.health.Of, max(1, p.spec.Quorum))
}
