package pool

import (
	"net/netip"
	"strings"

	"fairlead/internal/api"
)

// changeEvents are the events for what has changed of a service, and the members that the
// checks have taken out of service or brought back.
type changeEvents struct {
	service string
	list    []api.Event
	toggled []netip.AddrPort
}

// Member adds the events of a member. old is nil for a new member.
func (c *changeEvents) Member(old, m *Member) {
	if old == nil {
		if !m.Spec.Select.IsZero() {
			c.add(api.RealJoined, m, m.Endpoint)
		}
		if m.Status != api.RealDraining && m.Status != api.RealDrained {
			return
		}
		old = &Member{}
	}
	switch {
	case old.Status == m.Status:
	case m.Status == "":
		detail := ""
		if strings.HasPrefix(old.Cause, stopCause) {
			detail = m.RunsOn
		}
		c.add(api.RealEnabled, m, detail)
	case m.Status == api.RealDraining:
		c.add(api.DrainBegun, m, m.Cause)
	case m.Status == api.RealDrained:
		c.add(api.DrainEnded, m, m.Cause)
	}
	c.checked(old, m)
}

// checked adds the event of a member whose state the checks have changed.
func (c *changeEvents) checked(old, m *Member) {
	now := m.Shown
	if now.State == old.Shown.State && (now.Doubted == old.Shown.Doubted || !now.Doubted) || m.Status != "" &&
		now.State != api.RealDown {
		return
	}
	switch {
	case now.State == api.RealDraining:
		c.add(api.DrainBegun, m, now.Cause)
		return
	case now.State == api.RealDown:
		c.add(api.RealIsDown, m, now.Cause)
	case old.Status == "" || now.Doubted:
		c.add(api.RealIsUp, m, now.Cause)
	default:
		return // the event RealEnabled reports this
	}
	c.toggled = append(c.toggled, m.At)
}

// modeEvents are the events for changes of a service's status.
var modeEvents = map[api.ServiceStatus]api.EventKind{api.ServiceSorry: api.SorryUsed, api.ServicePanics: api.PanicBegun,
	api.ServiceUp: api.ChecksBelieved, api.ServiceDown: api.ChecksBelieved}

// add adds an event of the service, or of one of its real servers.
func (c *changeEvents) add(kind api.EventKind, m *Member, detail string) {
	object := "service " + c.service
	if m != nil {
		object += " real " + m.Text()
	}
	c.list = append(c.list, api.Event{Kind: kind, Object: object, Detail: detail})
}

// ChangesSince returns the events for what has changed since the pool was. It returns no
// events if was is nil or restored.
func (p *Pool) ChangesSince(was *Pool) (events []api.Event, toggled []netip.AddrPort) {
	if was == nil || was.Restored {
		return nil, nil
	}
	c := changeEvents{service: p.Spec.Name}
	for _, m := range p.Members {
		c.Member(was.Member(m.At), &m)
	}
	for _, m := range was.Members {
		if p.Member(m.At) == nil {
			c.add(api.RealLeft, &m, m.Cause)
		}
	}
	if was.Quorum() != p.Quorum() {
		kind := api.QuorumGained
		if !p.Quorum() {
			kind = api.QuorumLost
		}
		c.add(kind, nil, p.QuorumText())
	}
	ignored := func(s api.ServiceStatus) bool { return s == api.ServiceSorry || s == api.ServicePanics }
	if a, b := was.Status(), p.Status(); a != b && (ignored(a) || ignored(b)) {
		c.add(modeEvents[b], nil, p.QuorumText())
	}
	return c.list, c.toggled
}
