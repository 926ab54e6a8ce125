package daemon

import "strings"

// reportPool tells what has changed of a service.
func (d *Daemon) reportPool(was, p *pool) {
	if was == nil || was.restored {
		return
	}
	name := p.spec.Name
	for _, m := range p.members {
		d.reportMember(name, was.member(m.at), &m)
	}
	for _, m := range was.members {
		if p.member(m.at) == nil {
			d.reportService(RealLeft, name, &m, m.cause)
		}
	}
	if was.quorum() != p.quorum() {
		kind := QuorumGained
		if !p.quorum() {
			kind = QuorumLost
		}
		d.reportService(kind, name, nil, p.quorumText())
	}
	if a, b := was.status(), p.status(); a != b && (a == ServiceSorry || b == ServiceSorry || a == ServicePanics || b == ServicePanics) {
		d.reportService(modes[b], name, nil, p.quorumText())
	}
}

// reportMember tells what has changed of a member, which was old before; nil for
// none.
func (d *Daemon) reportMember(service string, old, m *member) {
	if old == nil {
		if !m.spec.Select.IsZero() {
			d.reportService(RealJoined, service, m, m.Endpoint)
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
		d.reportService(RealEnabled, service, m, detail)
	case m.standing == RealDraining:
		d.reportService(DrainBegun, service, m, m.cause)
	case m.standing == RealDrained:
		d.reportService(DrainEnded, service, m, m.cause)
	}
	d.reportChecked(service, old, m)
}

// reportChecked tells where the checks have made a member stand otherwise.
func (d *Daemon) reportChecked(service string, old, m *member) {
	now := m.shown
	if now.State == old.shown.State && (now.doubted == old.shown.doubted || !now.doubted) || m.standing != "" && now.State != RealDown {
		return
	}
	switch {
	case now.State == RealDraining:
		d.reportService(DrainBegun, service, m, now.Cause)
		return
	case now.State == RealDown:
		d.reportService(RealIsDown, service, m, now.Cause)
	case old.standing == "" || now.doubted:
		d.reportService(RealIsUp, service, m, now.Cause)
	default:
		return // that it is enabled says it
	}
	d.services.transitions[realKey{service, m.at}]++
}

// modes are the events of how a service's real servers are used.
var modes = map[ServiceStatus]EventKind{ServiceSorry: SorryUsed, ServicePanics: PanicBegun, ServiceUp: ChecksBelieved, ServiceDown: ChecksBelieved}

// reportService tells of a service, or of a real server of it.
func (d *Daemon) reportService(kind EventKind, service string, m *member, detail string) {
	object := "service " + service
	if m != nil {
		object += " real " + m.text()
	}
	d.note(Event{Kind: kind, Object: object, Detail: detail})
}
