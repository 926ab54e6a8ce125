package daemon

import "fairlead/internal/model"

// hostState returns the state that the host must have now, without virtual services:
// the attachments of running sandboxes, their publishes, and the networks that they
// use, or in which the host reaches sandboxes of other hosts.
func (ns *networks) hostState(w model.Desired) model.State {
	host := model.State{Endpoints: make([]model.Endpoint, 0, len(w.Attachments))}
	used, alive := w.ReachedNetworks(ns.full), map[string]bool{}
	for _, a := range w.Attachments {
		if a.Sandbox == "" && a.Cgroup == "" || ns.problems[a.Name] != "" {
			continue
		}
		used[a.Network], alive[a.Name] = true, true
		host.Endpoints = append(host.Endpoints, ns.withKeptAddresses(a.Leased()))
	}
	for _, n := range w.Networks {
		if used[n.Name] || n.Permanent() && ns.problems[networkProblem(n.Name)] == "" {
			host.Networks = append(host.Networks, n)
		}
	}
	for _, p := range w.Publishes {
		if alive[p.Endpoint] && ns.problems[p.String()] == "" {
			host.Publishes = append(host.Publishes, p)
		}
	}
	return host
}

// networkProblem returns the key of a network's problem.
func networkProblem(network string) string { return "network " + network }
