package networks

import (
	"fairlead/internal/daemon/state"
	"fairlead/internal/model"
)

// HostState returns the state that the host must have now, without virtual services:
// the attachments of running sandboxes, their publishes, and the networks that they
// use, or in which the host reaches sandboxes of other hosts.
func (ns *Networks) HostState(w model.Desired) model.State {
	host := model.State{Endpoints: make([]model.Endpoint, 0, len(w.Attachments))}
	used, alive := w.ReachedNetworks(ns.state.Applied()), map[string]bool{}
	for _, a := range w.Attachments {
		if a.Sandbox == "" && a.Cgroup == "" || ns.state.Problems[a.Name] != "" {
			continue
		}
		used[a.Network], alive[a.Name] = true, true
		host.Endpoints = append(host.Endpoints, ns.withKeptAddresses(a.Leased()))
	}
	for _, n := range w.Networks {
		if used[n.Name] || n.Permanent() && ns.state.Problems[state.OfNetwork(n.Name)] == "" {
			host.Networks = append(host.Networks, ns.Chosen(n))
		}
	}
	for _, p := range w.Publishes {
		if alive[p.Endpoint] && ns.state.Problems[p.String()] == "" {
			host.Publishes = append(host.Publishes, p)
		}
	}
	return host
}
