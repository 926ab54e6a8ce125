package daemon

import (
	"errors"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// A network that cannot exist on this host for now, because its parent is missing,
// is unavailable: its attachments have a problem, and everything else continues.
// They are applied again, with their earlier addresses, as soon as the host has what
// they need.

// networks decides which networks can exist on this host.
type networks struct {
	*state
	// unavailable has the unavailable networks; keptAddresses has the earlier addresses of
	// their attachments, by the attachments' names.
	unavailable   map[string]bool
	keptAddresses map[string][]netip.Addr
}

func newNetworks(s *state) *networks {
	return &networks{state: s, unavailable: map[string]bool{}, keptAddresses: map[string][]netip.Addr{}}
}

// markUnavailable marks the networks that the error is about as unavailable, and
// reports whether there are new ones. If one of them differs between the two desired
// states, the request itself is impossible: then markUnavailable does nothing.
func (ns *networks) markUnavailable(before, next model.Desired, err error) bool {
	unfit := engine.UnfitNetworks(err)
	for name := range unfit {
		if !unchanged(before, next, name) {
			return false
		}
	}
	marked := false
	for _, a := range next.Attachments {
		why := unfit[a.Network]
		if why == nil || a.Sandbox == "" || ns.problems[a.Name] != "" {
			continue
		}
		if e, up := ns.full.Endpoint(a.Name); up {
			ns.keptAddresses[a.Name] = e.Addresses
		}
		if !ns.unavailable[a.Network] {
			ns.note(api.Event{Kind: api.NetworkUnavailable, Object: "network " + a.Network, Detail: why.Error()})
		}
		ns.problems[a.Name], ns.unavailable[a.Network], marked = why.Error(), true, true
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
func (ns *networks) withKeptAddresses(e model.Endpoint) model.Endpoint {
	if addrs, ok := ns.keptAddresses[e.Name]; ok && len(e.Addresses) == 0 {
		e.Addresses = addrs
	}
	return e
}

// available returns the unavailable networks that can exist on the host again.
func (ns *networks) available() (back []string, err error) {
	if len(ns.unavailable) == 0 {
		return nil, nil
	}
	s := model.State{}
	for _, n := range ns.desired.Networks {
		if ns.unavailable[n.Name] {
			s.Networks = append(s.Networks, n)
		}
	}
	still, err := ns.engine.Unfit(s)
	if err != nil {
		return nil, err
	}
	for _, n := range s.Networks {
		if still[n.Name] == nil {
			back = append(back, n.Name)
		}
	}
	return back, nil
}

// Unavailable returns why networks cannot exist on this host at present, by name. A network without attachments can be
// among them.
func (d *Daemon) Unavailable() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	unfit, err := d.engine.Unfit(model.State{Networks: d.desired.Networks})
	d.warn("read the host's links", err)
	why := map[string]string{}
	for name, cause := range unfit {
		why[name] = errors.Unwrap(cause).Error() // without the network's name
	}
	return why
}

// forgetKeptAddresses deletes the kept addresses of attachments that are applied
// again.
func (ns *networks) forgetKeptAddresses() {
	for name := range ns.keptAddresses {
		if ns.problems[name] == "" {
			delete(ns.keptAddresses, name)
		}
	}
}
