package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// index finds the parts of a state by name, and the endpoints that have an
// interface or an address. It avoids linear searches, because a host may have
// thousands of endpoints.
type index struct {
	State
	networks, endpoints map[string]int
	interfaces          map[string][]int
	addrs               map[netip.Addr][]int
	cgroups             []int
}

func (s State) index() index {
	by := index{State: s, networks: map[string]int{}, endpoints: map[string]int{}, interfaces: map[string][]int{},
		addrs: map[netip.Addr][]int{}}
	for i, n := range s.Networks {
		if _, first := by.networks[n.Name]; !first {
			by.networks[n.Name] = i
		}
	}
	for i, e := range s.Endpoints {
		if _, first := by.endpoints[e.Name]; !first {
			by.endpoints[e.Name] = i
		}
		if n, _ := by.network(e.Network); e.Sandbox != "" && !n.Traits().NoLink {
			by.interfaces[inside(e)] = append(by.interfaces[inside(e)], i)
		}
		for _, a := range e.Addresses {
			by.addrs[a] = append(by.addrs[a], i)
		}
		if e.Cgroup != "" {
			by.cgroups = append(by.cgroups, i)
		}
	}
	return by
}

// inside returns the key of an endpoint's interface in its sandbox. If another
// program moves the interface into the sandbox, that program chooses its name.
func inside(e Endpoint) string {
	if e.HostInterface != "" {
		return e.Sandbox + " external " + e.HostInterface
	}
	return e.Sandbox + " " + e.InterfaceName()
}

func (s index) network(name string) (Network, bool) {
	i, ok := s.networks[name]
	if !ok {
		return Network{}, false
	}
	return s.Networks[i], true
}

func (s index) endpoint(name string) (Endpoint, bool) {
	i, ok := s.endpoints[name]
	if !ok {
		return Endpoint{}, false
	}
	return s.Endpoints[i], true
}

// other returns the first of these endpoints that is not e.
func (s index) other(e Endpoint, among []int) (Endpoint, bool) {
	i := slices.IndexFunc(among, func(i int) bool { return s.Endpoints[i].Name != e.Name })
	if i < 0 {
		return Endpoint{}, false
	}
	return s.Endpoints[among[i]], true
}

// twice returns an error if another endpoint already has something that e needs
// alone.
func (s index) twice(e Endpoint) error {
	if o, ok := s.other(e, s.interfaces[inside(e)]); ok && e.Sandbox != "" {
		return fmt.Errorf("interface %s of sandbox %s already belongs to endpoint %s: choose another name",
			e.InterfaceName(), e.Sandbox, o.Name)
	}
	for _, i := range s.cgroups {
		if o := s.Endpoints[i]; e.Cgroup != "" && o.Name != e.Name && within(e.Cgroup, o.Cgroup) {
			return fmt.Errorf("cgroup %s is the cgroup of endpoint %s or below it: two workloads need separate cgroups",
				e.Cgroup, o.Name)
		}
	}
	for _, a := range e.Addresses {
		if o, ok := s.other(e, s.addrs[a]); ok {
			return fmt.Errorf("address %s already belongs to endpoint %s: choose another", a, o.Name)
		}
	}
	return nil
}
