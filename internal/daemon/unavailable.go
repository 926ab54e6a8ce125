package daemon

import (
	"slices"

	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// A network that cannot be on this host for now, because its parent is missing,
// is parted: its attachments have a problem, and everything else goes on. They
// come back, with the addresses that they had, as soon as the host has what
// they need.

// part parts the networks that the error is about, unless it is the change from
// one wishes to the next that asks for the impossible. It reports whether it
// has parted any.
func (d *Daemon) part(before, next model.Desired, err error) bool {
	unfit := engine.UnfitNetworks(err)
	for name := range unfit {
		if !unasked(before, next, name) {
			return false
		}
	}
	parted := false
	for _, a := range next.Attachments {
		why := unfit[a.Network]
		if why == nil || a.Sandbox == "" || d.problems[a.Name] != "" {
			continue
		}
		if e, up := d.full.Endpoint(a.Name); up {
			d.unavailable[a.Name] = e.Addresses
		}
		if !d.unfit[a.Network] {
			d.note(Event{Kind: NetworkUnavailable, Object: "network " + a.Network, Detail: why.Error()})
		}
		d.problems[a.Name], d.unfit[a.Network], parted = why.Error(), true, true
	}
	return parted
}

// unasked reports whether nothing new is asked of the network.
func unasked(before, next model.Desired, name string) bool {
	was, known := model.State{Networks: before.Networks}.Network(name)
	is, left := model.State{Networks: next.Networks}.Network(name)
	if !known || !left || !was.Equal(is) {
		return false
	}
	return !slices.ContainsFunc(next.Attachments, func(a model.Attachment) bool {
		return a.Network == name && !slices.ContainsFunc(before.Attachments, a.Equal)
	})
}

// available returns the endpoint with the addresses that it had before its
// network was parted: nobody can have taken them.
func (d *Daemon) available(e model.Endpoint) model.Endpoint {
	if addrs, ok := d.unavailable[e.Name]; ok && len(e.Addresses) == 0 {
		e.Addresses = addrs
	}
	return e
}

// reunite applies parted networks again that can be on the host now, and the
// others anew if the host's links are not what they were.
func (d *Daemon) reunite() {
	var back []string
	if len(d.unfit) > 0 {
		s := model.State{}
		for _, n := range d.desired.Networks {
			if d.unfit[n.Name] {
				s.Networks = append(s.Networks, n)
			}
		}
		still, err := d.engine.Unfit(s)
		if err != nil {
			d.warn("look at the host's links", err)
			return
		}
		for _, n := range s.Networks {
			if still[n.Name] == nil {
				back = append(back, n.Name)
			}
		}
	}
	for _, a := range d.desired.Attachments {
		if slices.Contains(back, a.Network) {
			delete(d.problems, a.Name)
		}
	}
	changed, err := d.engine.FactsChanged(d.state(d.desired))
	d.warn("look at the host's links", err)
	if len(back) == 0 && !changed {
		return
	}
	for _, name := range back {
		delete(d.unfit, name)
	}
	if err := d.settle(d.desired); err != nil {
		d.cfg.Log.Error("follow the host's links", "error", err)
		return
	}
	for _, name := range back {
		if !d.unfit[name] {
			d.note(Event{Kind: NetworkAvailable, Object: "network " + name})
		}
	}
	d.forgetUnavailable()
}

// forgetUnavailable forgets what was kept for attachments that are back.
func (d *Daemon) forgetUnavailable() {
	for name := range d.unavailable {
		if d.problems[name] == "" {
			delete(d.unavailable, name)
		}
	}
}
