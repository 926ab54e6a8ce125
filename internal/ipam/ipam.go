// Package ipam leases addresses of a network's subnets to endpoints. It keeps
// no state: the caller stores the leases and passes them to the next call.
package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/model"
)

// Leases maps the name of each endpoint to its addresses.
type Leases map[string][]netip.Addr

// Assign returns a copy of the state in which every endpoint of a network with
// subnets has one address per subnet, and the new leases. For each endpoint
// Assign uses the first of these that is possible: the addresses that the state
// requests, the current lease if it is still valid, the lowest free address.
// Assign returns an error if a requested address is reserved for the host or a
// gateway, or if a subnet has no free address. It does not change its arguments.
func Assign(s model.State, current Leases) (model.State, Leases, error) {
	reserved := reserved(s)
	taken := maps.Clone(reserved)
	for _, e := range s.Endpoints {
		for _, a := range e.Addresses {
			taken[a] = true
		}
	}
	out := s
	out.Endpoints = make([]model.Endpoint, len(s.Endpoints))
	leases := Leases{}
	// Endpoints with a current lease come first, so that a new endpoint never
	// gets the address of an endpoint that is later in the state.
	for _, renew := range []bool{true, false} {
		for i, e := range s.Endpoints {
			n, _ := s.Network(e.Network)
			if (len(current[e.Name]) > 0) != renew {
				continue
			}
			addrs, err := lease(n, e, current[e.Name], taken)
			if i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return reserved[a] }); i >= 0 {
				err = fmt.Errorf("address %s is reserved for the host or the gateway: request another address",
					addrs[i])
			}
			if err != nil {
				return s, nil, fmt.Errorf("lease address for endpoint %s: %w", e.Name, err)
			}
			e.Addresses = addrs
			out.Endpoints[i] = e
			leases[e.Name] = addrs
		}
	}
	return out, leases, nil
}

// reserved returns every address that no endpoint may have: the addresses of
// the host and of the gateways.
func reserved(s model.State) map[netip.Addr]bool {
	addrs := map[netip.Addr]bool{}
	for _, n := range s.Networks {
		for _, sub := range n.Subnets {
			addrs[sub.HostAddress()] = true
			addrs[sub.GatewayAddress()] = true
		}
		for _, a := range n.ParentAddresses {
			addrs[a] = true
		}
	}
	return addrs
}

// lease returns the addresses of one endpoint and adds new ones to taken.
func lease(n model.Network, e model.Endpoint, current []netip.Addr, taken map[netip.Addr]bool) ([]netip.Addr, error) {
	if len(e.Addresses) > 0 {
		return e.Addresses, nil
	}
	var addrs []netip.Addr
	for _, sub := range n.Subnets {
		pools := n.Pools(sub)
		a, ok := renew(sub, pools, current, taken)
		if !ok {
			a, ok = lowestFree(sub, pools, taken, n.Listed())
		}
		if !ok {
			return nil, fmt.Errorf("subnet %s of network %s is full: remove an endpoint or widen the range", sub.Pool(),
				n.Name)
		}
		taken[a] = true
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// renew returns the address of the current lease that is usable and free in
// the subnet, if there is one.
func renew(sub model.Subnet, pools []netip.Prefix, current []netip.Addr,
	taken map[netip.Addr]bool) (netip.Addr, bool) {
	for _, a := range current {
		in := slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Contains(a) })
		if in && !taken[a] && sub.Usable(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// lowestFree returns the lowest free address of the first pool that has one. It skips the
// addresses that other hosts may have.
func lowestFree(sub model.Subnet, pools []netip.Prefix, taken map[netip.Addr]bool,
	listed []netip.Addr) (netip.Addr, bool) {
	for _, pool := range pools {
		for a := pool.Addr(); pool.Contains(a); a = a.Next() {
			if !taken[a] && sub.Usable(a) && !slices.Contains(listed, a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
