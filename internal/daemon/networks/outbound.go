package networks

import (
	"errors"
	"maps"
	"slices"

	"fairlead/internal/api"
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

// AutoPaths returns the networks with outbound auto, and the paths of their packets. It forgets the choices for others.
func (ns *Networks) AutoPaths() (names []string, paths []rules.Path) {
	w := ns.state.Desired()
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

// Choose records the reasons against ebpf, and applies the desired state again if a choice
// has changed. It notes an event for each such network. If the host refuses ebpf, the
// networks continue with nft until changed is true: until its rules have changed.
func (ns *Networks) Choose(names, why []string, changed bool, apply func() error) error {
	var differ []string
	for i, name := range names {
		was, known := ns.outbound[name]
		if known && was.failed && !changed && why[i] == "" {
			continue
		}
		ns.outbound[name] = Choice{Why: why[i]}
		if known && was.Outbound() == ns.outbound[name].Outbound() || !known && why[i] != "" {
			continue
		}
		differ = append(differ, name)
	}
	if len(differ) == 0 {
		return nil
	}
	err := apply()
	refused := slices.DeleteFunc(slices.Clone(differ), func(name string) bool { return ns.outbound[name].Why != "" })
	if err != nil && len(refused) > 0 {
		for _, name := range refused {
			ns.outbound[name] = Choice{Why: err.Error(), failed: true}
		}
		err = errors.Join(err, apply())
	}
	for _, name := range differ {
		ns.state.Note(api.Event{Kind: api.OutboundChosen, Object: "network " + name,
			Detail: ns.outbound[name].String()})
	}
	return err
}
