package networks

import (
	"errors"
	"maps"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/engine"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// Chosen returns the network with the chosen setting: nft until the host's rules were read.
func (ns *Networks) Chosen(n model.Network) model.Network {
	if n.Outbound == model.OutboundAuto {
		n.Outbound = model.OutboundNFT
		if c, ok := ns.outbound[n.Name]; ok {
			n.Outbound = c.Outbound()
		}
	}
	return n
}

// Choices returns the choices for networks with outbound auto, by their names. A network
// whose rules were not read is missing.
func (ns *Networks) Choices() map[string]Choice {
	all := map[string]Choice{}
	for _, n := range ns.state.Desired().Networks {
		if c, ok := ns.outbound[n.Name]; ok && n.Outbound == model.OutboundAuto {
			all[n.Name] = c
		}
	}
	return all
}

// NextChoice returns when ebpf is chosen for a network if no rule decides before, or a choice is
// applied again that the host could not follow; zero if for none.
func (ns *Networks) NextChoice() (next time.Time) {
	for _, c := range ns.Choices() {
		for _, at := range []time.Time{c.Until, c.again} {
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// AutoPaths returns the networks of a state with outbound auto, and the paths of their packets. It forgets the choices
// for others.
func (ns *Networks) AutoPaths(w model.Desired) (names []string, paths []rules.Path) {
	for _, n := range w.Networks {
		if n.Outbound != model.OutboundAuto {
			continue
		}
		for _, s := range n.Subnets {
			if s.Prefix.Addr().Is4() {
				var endpoints []string
				for _, a := range w.Attachments {
					if a.Network == n.Name {
						endpoints = append(endpoints, a.Name)
					}
				}
				names = append(names, n.Name)
				paths = append(paths, engine.OutboundPath(n.Name, s.Prefix, endpoints))
			}
		}
	}
	maps.DeleteFunc(ns.outbound, func(name string, _ Choice) bool { return !slices.Contains(names, name) })
	return names, paths
}

// Finding is what the rules of the host say about networks with outbound auto.
type Finding struct {
	// Names are the networks, and Why the reasons against ebpf; empty if there is none.
	Names, Why []string
	// Changed means that the rules have changed.
	Changed bool
	// At is when they were read. Until is when they may say something else without a change, because
	// elements of sets expire; zero means never.
	At, Until time.Time
}

// Choose chooses for networks, and applies the desired state again if the host must follow. It
// notes an event for each network whose choice differs, or is the first, or was followed late. If
// the host refuses ebpf, the networks continue with nft until its rules have changed. A choice that
// the host cannot follow is applied again later.
func (ns *Networks) Choose(f Finding, apply func() error) error {
	before, needed := maps.Clone(ns.outbound), false
	var differ []string
	for i, name := range f.Names {
		was, known := ns.outbound[name]
		is := was.next(f.Why[i], f.Changed, f.At, ns.hold)
		ns.outbound[name] = is
		if known && was.Outbound() == is.Outbound() && was.again.IsZero() {
			continue
		}
		differ = append(differ, name)
		needed = needed || known || is.Why == ""
	}
	var err error
	if needed {
		err = ns.applyChoices(before, differ, f.At, apply)
	}
	if sockets.AreUnopened(err) {
		return err
	}
	for _, name := range differ {
		was, is := before[name], ns.outbound[name]
		if !was.again.IsZero() && !is.again.IsZero() && was.Outbound() == is.Outbound() {
			continue // the host has still not followed
		}
		ns.state.Note(api.Event{Kind: api.OutboundChosen, Object: "network " + name,
			Detail: is.View().String()})
	}
	if !maps.Equal(before, ns.outbound) {
		ns.state.Changed()
	}
	return err
}

// applyChoices applies the desired state. If that fails, the networks that differ go back to nft,
// unless the step is repeated: then it restores the choices before.
func (ns *Networks) applyChoices(before map[string]Choice, differ []string, at time.Time, apply func() error) error {
	err := apply()
	last := err
	refused := slices.DeleteFunc(slices.Clone(differ), func(name string) bool { return ns.outbound[name].Why != "" })
	switch {
	case sockets.AreUnopened(err):
		ns.outbound = before
		return err
	case err != nil && len(refused) > 0:
		for _, name := range refused {
			ns.outbound[name] = Choice{Why: err.Error(), failed: true}
		}
		last = apply()
		err = errors.Join(err, last)
	}
	for _, name := range differ {
		ns.outbound[name] = ns.outbound[name].tried(at, last)
	}
	return err
}
