package networks

import (
	"errors"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// MarkUnavailable marks the networks that the error is about as unavailable, and
// reports whether there are new ones. If one of them differs between the two desired
// states, the request itself is impossible: then MarkUnavailable does nothing.
func (ns *Networks) MarkUnavailable(before, next model.Desired, err error) bool {
	unfit := engine.UnfitNetworks(err)
	for name := range unfit {
		if !unchanged(before, next, name) {
			return false
		}
	}
	marked := false
	for _, a := range next.Attachments {
		why := unfit[a.Network]
		if why == nil || a.Sandbox == "" || ns.state.Problems[a.Name] != "" {
			continue
		}
		if e, up := ns.state.Applied().Endpoint(a.Name); up {
			ns.keptAddresses[a.Name] = e.Addresses
		}
		if !ns.unavailable[a.Network] {
			ns.state.Note(api.Event{Kind: api.NetworkUnavailable, Object: "network " + a.Network,
				Detail: why.Error()})
		}
		ns.state.Problems[a.Name], ns.unavailable[a.Network], marked = why.Error(), true, true
	}
	return marked
}

// unchanged reports whether the network and its attachments are the same in both
// desired states.
func unchanged(before, next model.Desired, name string) bool {
	was, known := before.Network(name)
	is, left := next.Network(name)
	if !known || !left || !was.Equal(is) {
		return false
	}
	return !slices.ContainsFunc(next.Attachments, func(a model.Attachment) bool {
		return a.Network == name && !slices.ContainsFunc(before.Attachments, a.Equal)
	})
}

// withKeptAddresses returns the endpoint with the addresses that it had before its
// network became unavailable. No other endpoint can have them.
func (ns *Networks) withKeptAddresses(e model.Endpoint) model.Endpoint {
	if addrs, ok := ns.keptAddresses[e.Name]; ok && len(e.Addresses) == 0 {
		e.Addresses = addrs
	}
	return e
}

// Available returns the unavailable networks that can exist on the host again.
func (ns *Networks) Available() (back []string, err error) {
	if len(ns.unavailable) == 0 {
		return nil, nil
	}
	s := model.State{}
	for _, n := range ns.state.Desired().Networks {
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

// Unfit returns why networks cannot exist on this host at present, by name. A network without attachments can be among
// them.
func (ns *Networks) Unfit() map[string]string {
	unfit, err := ns.engine.Unfit(model.State{Networks: ns.state.Desired().Networks})
	ns.state.Warn("read the host's links", err)
	why := map[string]string{}
	for name, cause := range unfit {
		why[name] = errors.Unwrap(cause).Error() // without the network's name
	}
	return why
}

// Retry makes networks available that were not, so that a step can apply their attachments again.
func (ns *Networks) Retry(names []string) {
	for _, a := range ns.state.Desired().Attachments {
		if slices.Contains(names, a.Network) {
			delete(ns.state.Problems, a.Name)
		}
	}
	for _, name := range names {
		delete(ns.unavailable, name)
	}
}

// Retried ends Retry after the step, with the step's error. If the step has failed, the networks are tried again after
// the next change of a link.
func (ns *Networks) Retried(names []string, err error) {
	for _, name := range names {
		if err != nil {
			ns.unavailable[name] = true
		} else if !ns.unavailable[name] {
			ns.state.Note(api.Event{Kind: api.NetworkAvailable, Object: "network " + name})
		}
	}
	ns.ForgetKeptAddresses()
}

// ForgetKeptAddresses deletes the kept addresses of attachments that are applied
// again.
func (ns *Networks) ForgetKeptAddresses() {
	for name := range ns.keptAddresses {
		if ns.state.Problems[name] == "" {
			delete(ns.keptAddresses, name)
		}
	}
}
