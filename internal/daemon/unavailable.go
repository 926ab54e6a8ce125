package daemon

import (
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// A network that cannot exist on this host for now, because its parent is missing,
// is unavailable: its attachments have a problem, and everything else continues.
// They are applied again, with their earlier addresses, as soon as the host has what
// they need.

// markUnavailable marks the networks that the error is about as unavailable, and
// reports whether there are new ones. If one of them differs between the two desired
// states, the request itself is impossible: then markUnavailable does nothing.
func (d *Daemon) markUnavailable(before, next model.Desired, err error) bool {
	unfit := engine.UnfitNetworks(err)
	for name := range unfit {
		if !unchanged(before, next, name) {
			return false
		}
	}
	marked := false
	for _, a := range next.Attachments {
		why := unfit[a.Network]
		if why == nil || a.Sandbox == "" || d.problems[a.Name] != "" {
			continue
		}
		if e, up := d.full.Endpoint(a.Name); up {
			d.keptAddresses[a.Name] = e.Addresses
		}
		if !d.unavailable[a.Network] {
			d.note(api.Event{Kind: api.NetworkUnavailable, Object: "network " + a.Network, Detail: why.Error()})
		}
		d.problems[a.Name], d.unavailable[a.Network], marked = why.Error(), true, true
	}
	return marked
}

// unchanged reports whether the network and its attachments are the same in both
// desired states.
func unchanged(before, next model.Desired, name string) bool {
	was, known := model.State{Networks: before.Networks}.Network(name)
	is, left := model.State{Networks: next.Networks}.Network(name)
	if !known || !left || !was.Equal(is) {
		return false
	}
	return !slices.ContainsFunc(next.Attachments, func(a model.Attachment) bool {
		return a.Network == name && !slices.ContainsFunc(before.Attachments, a.Equal)
	})
}

// withKeptAddresses returns the endpoint with the addresses that it had before its
// network became unavailable. No other endpoint can have them.
func (d *Daemon) withKeptAddresses(e model.Endpoint) model.Endpoint {
	if addrs, ok := d.keptAddresses[e.Name]; ok && len(e.Addresses) == 0 {
		e.Addresses = addrs
	}
	return e
}

// recheckNetworks applies unavailable networks that can exist on the host again. It
// also applies the other networks again if the host's links have changed.
func (d *Daemon) recheckNetworks() {
	var back []string
	if len(d.unavailable) > 0 {
		s := model.State{}
		for _, n := range d.desired.Networks {
			if d.unavailable[n.Name] {
				s.Networks = append(s.Networks, n)
			}
		}
		still, err := d.engine.Unfit(s)
		if err != nil {
			d.warn("read the host's links", err)
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
	d.warn("read the host's links", err)
	if len(back) == 0 && !changed {
		return
	}
	for _, name := range back {
		delete(d.unavailable, name)
	}
	if err := d.settle(d.desired); err != nil {
		d.cfg.Log.Error("follow the host's links", "error", err)
		return
	}
	for _, name := range back {
		if !d.unavailable[name] {
			d.note(api.Event{Kind: api.NetworkAvailable, Object: "network " + name})
		}
	}
	d.forgetKeptAddresses()
}

// forgetKeptAddresses deletes the kept addresses of attachments that are applied
// again.
func (d *Daemon) forgetKeptAddresses() {
	for name := range d.keptAddresses {
		if d.problems[name] == "" {
			delete(d.keptAddresses, name)
		}
	}
}
