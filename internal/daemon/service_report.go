package daemon

import (
	"strings"

	"fairlead/internal/api"
)

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
			d.reportService(api.RealLeft, name, &m, m.cause)
		}
	}
	if was.quorum() != p.quorum() {
		kind := api.QuorumGained
		if !p.quorum() {
			kind = api.QuorumLost
		}
		d.reportService(kind, name, nil, p.quorumText())
	}
	if a, b := was.status(), p.status(); a != b && (a == api.ServiceSorry || b == api.ServiceSorry || a == api.ServicePanics || b == api.ServicePanics) {
		d.reportService(modeEvents[b], name, nil, p.quorumText())
	}
}

// reportMember reports what has changed of a member. old is nil for a new member.
func (d *Daemon) reportMember(service string, old, m *member) {
	if old == nil {
		if !m.spec.Select.IsZero() {
			d.reportService(api.RealJoined, service, m, m.Endpoint)
		}
		if m.status != api.RealDraining && m.status != api.RealDrained {
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
		d.reportService(api.RealEnabled, service, m, detail)
	case m.status == api.RealDraining:
		d.reportService(api.DrainBegun, service, m, m.cause)
	case m.status == api.RealDrained:
		d.reportService(api.DrainEnded, service, m, m.cause)
	}
	d.reportChecked(service, old, m)
}

// reportChecked reports that the checks have changed the state of a member.
func (d *Daemon) reportChecked(service string, old, m *member) {
	now := m.shown
	if now.State == old.shown.State && (now.doubted == old.shown.doubted || !now.doubted) || m.status != "" && now.State != api.RealDown {
		return
	}
	switch {
	case now.State == api.RealDraining:
		d.reportService(api.DrainBegun, service, m, now.Cause)
		return
	case now.State == api.RealDown:
		d.reportService(api.RealIsDown, service, m, now.Cause)
	case old.status == "" || now.doubted:
		d.reportService(api.RealIsUp, service, m, now.Cause)
	default:
		return // the event RealEnabled reports this
	}
	d.services.transitions[realKey{service, m.at}]++
}

// modeEvents are the events for changes of a service's status.
var modeEvents = map[api.ServiceStatus]api.EventKind{api.ServiceSorry: api.SorryUsed, api.ServicePanics: api.PanicBegun, api.ServiceUp: api.ChecksBelieved, api.ServiceDown: api.ChecksBelieved}

// reportService notes an event of a service, or of one of its real servers.
func (d *Daemon) reportService(kind api.EventKind, service string, m *member, detail string) {
	object := "service " + service
	if m != nil {
		object += " real " + m.text()
	}
	d.note(api.Event{Kind: kind, Object: object, Detail: detail})
}
