// Package ipam leases addresses of a network's subnets to endpoints. Leases
// are values; whoever holds them keeps them.
package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/model"
)

// Leases maps an endpoint's name to its addresses.
type Leases map[string][]netip.Addr

// Assign returns a copy of the state in which every endpoint of a network
// with subnets has an address of each family, and the leases that follow. An
// address that the state asks for is kept; then an earlier lease, while it
// still fits; then the lowest free address.
func Assign(s model.State, current Leases) (model.State, Leases, error) {
	kept := kept(s)
	taken := maps.Clone(kept)
	for _, e := range s.Endpoints {
		for _, a := range e.Addresses {
			taken[a] = true
		}
	}
	out := s
	out.Endpoints = make([]model.Endpoint, len(s.Endpoints))
	leases := Leases{}
	// Held leases go first, so that a new endpoint never takes the address
	// of one that stands behind it in the state.
	for _, renew := range []bool{true, false} {
		for i, e := range s.Endpoints {
			n, _ := s.Network(e.Network)
			if (len(current[e.Name]) > 0) != renew {
				continue
			}
			addrs, err := lease(n, e, current[e.Name], taken)
			if i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return kept[a] }); i >= 0 {
				err = fmt.Errorf("address %s is the host's or the gateway's: ask for another", addrs[i])
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

// kept returns every address that no endpoint may have: the host's and the
// gateways'.
func kept(s model.State) map[netip.Addr]bool {
	kept := map[netip.Addr]bool{}
	for _, n := range s.Networks {
		for _, sub := range n.Subnets {
			kept[sub.HostAddress()] = true
			kept[sub.GatewayAddress()] = true
		}
		for _, a := range n.ParentAddresses {
			kept[a] = true
		}
	}
	return kept
}

func lease(n model.Network, e model.Endpoint, current []netip.Addr, taken map[netip.Addr]bool) ([]netip.Addr, error) {
	if len(e.Addresses) > 0 {
		return e.Addresses, nil
	}
	var addrs []netip.Addr
	for _, sub := range n.Subnets {
		a, ok := renewed(sub, current, taken)
		if !ok {
			a, ok = lowest(sub, taken)
		}
		if !ok {
			return nil, fmt.Errorf("subnet %s of network %s is full: free an endpoint or widen the range", sub.Pool(), n.Name)
		}
		taken[a] = true
		addrs = append(addrs, a)
	}
	return addrs, nil
}

func renewed(sub model.Subnet, current []netip.Addr, taken map[netip.Addr]bool) (netip.Addr, bool) {
	for _, a := range current {
		if sub.Pool().Contains(a) && !taken[a] && sub.Usable(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// lowest returns the first free address.
func lowest(sub model.Subnet, taken map[netip.Addr]bool) (netip.Addr, bool) {
	for a := sub.Pool().Addr(); sub.Pool().Contains(a); a = a.Next() {
		if !taken[a] && sub.Usable(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}
