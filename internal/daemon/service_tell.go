package daemon

import "strings"

// tellPool tells what has changed of a service.
func (d *Daemon) tellPool(was, p *pool) {
	if was == nil || was.restored {
		return
	}
	name := p.wish.Name
	for _, m := range p.members {
		d.tellMember(name, was.member(m.at), &m)
	}
	for _, m := range was.members {
		if p.member(m.at) == nil {
			d.tellService(RealLeft, name, &m, m.cause)
		}
	}
	if was.quorum() != p.quorum() {
		kind := QuorumGained
		if !p.quorum() {
			kind = QuorumLost
		}
		d.tellService(kind, name, nil, p.quorumText())
	}
	if a, b := was.status(), p.status(); a != b && (a == ServiceSorry || b == ServiceSorry || a == ServicePanics || b == ServicePanics) {
		d.tellService(modes[b], name, nil, p.quorumText())
	}
}

// tellMember tells what has changed of a member, which was old before; nil for
// none.
func (d *Daemon) tellMember(service string, old, m *member) {
	if old == nil {
		if !m.wish.Select.IsZero() {
			d.tellService(RealJoined, service, m, m.Endpoint)
		}
		if m.standing != RealDraining && m.standing != RealDrained {
			return
		}
		old = &member{}
	}
	switch {
	case old.standing == m.standing:
	case m.standing == "":
		detail := ""
		if strings.HasPrefix(old.cause, stopCause) {
			detail = m.runsOn
		}
		d.tellService(RealEnabled, service, m, detail)
	case m.standing == RealDraining:
		d.tellService(DrainBegun, service, m, m.cause)
	case m.standing == RealDrained:
		d.tellService(DrainEnded, service, m, m.cause)
	}
	d.tellChecked(service, old, m)
}

// tellChecked tells where the checks have made a member stand otherwise.
func (d *Daemon) tellChecked(service string, old, m *member) {
	now := m.shown
	if now.State == old.shown.State && (now.doubted == old.shown.doubted || !now.doubted) || m.standing != "" && now.State != RealDown {
		return
	}
	switch {
	case now.State == RealDraining:
		d.tellService(DrainBegun, service, m, now.Cause)
		return
	case now.State == RealDown:
		d.tellService(RealIsDown, service, m, now.Cause)
	case old.standing == "" || now.doubted:
		d.tellService(RealIsUp, service, m, now.Cause)
	default:
		return // that it is enabled says it
	}
	d.services.transitions[realKey{service, m.at}]++
}

// modes are the events of how a service's real servers are used.
var modes = map[ServiceStatus]EventKind{ServiceSorry: SorryUsed, ServicePanics: PanicBegun, ServiceUp: ChecksBelieved, ServiceDown: ChecksBelieved}

// tellService tells of a service, or of a real server of it.
func (d *Daemon) tellService(kind EventKind, service string, m *member, detail string) {
	object := "service " + service
	if m != nil {
		object += " real " + m.text()
	}
	d.note(Event{Kind: kind, Object: object, Detail: detail})
}
