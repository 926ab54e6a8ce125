package daemon

import "strings"

// reportPool reports what has changed of a service.
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
		d.reportService(modeEvents[b], name, nil, p.quorumText())
	}
}

// reportMember reports what has changed of a member. old is nil for a new member.
func (d *Daemon) reportMember(service string, old, m *member) {
	if old == nil {
		if !m.spec.Select.IsZero() {
			d.reportService(RealJoined, service, m, m.Endpoint)
		}
		if m.status != RealDraining && m.status != RealDrained {
			return
		}
		old = &member{}
	}
	switch {
	case old.status == m.status:
	case m.status == "":
		detail := ""
		if strings.HasPrefix(old.cause, stopCause) {
			detail = m.runsOn
		}
		d.reportService(RealEnabled, service, m, detail)
	case m.status == RealDraining:
		d.reportService(DrainBegun, service, m, m.cause)
	case m.status == RealDrained:
		d.reportService(DrainEnded, service, m, m.cause)
	}
	d.reportChecked(service, old, m)
}

// reportChecked reports that the checks have changed the state of a member.
func (d *Daemon) reportChecked(service string, old, m *member) {
	now := m.shown
	if now.State == old.shown.State && (now.doubted == old.shown.doubted || !now.doubted) || m.status != "" && now.State != RealDown {
		return
	}
	switch {
	case now.State == RealDraining:
		d.reportService(DrainBegun, service, m, now.Cause)
		return
	case now.State == RealDown:
		d.reportService(RealIsDown, service, m, now.Cause)
	case old.status == "" || now.doubted:
		d.reportService(RealIsUp, service, m, now.Cause)
	default:
		return // the event RealEnabled reports this
	}
	d.services.transitions[realKey{service, m.at}]++
}

// modeEvents are the events for changes of a service's status.
var modeEvents = map[ServiceStatus]EventKind{ServiceSorry: SorryUsed, ServicePanics: PanicBegun, ServiceUp: ChecksBelieved, ServiceDown: ChecksBelieved}

// reportService notes an event of a service, or of one of its real servers.
func (d *Daemon) reportService(kind EventKind, service string, m *member, detail string) {
	object := "service " + service
	if m != nil {
		object += " real " + m.text()
	}
	d.note(Event{Kind: kind, Object: object, Detail: detail})
}
