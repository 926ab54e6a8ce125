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

// Last maps subnets of a cluster's networks to the addresses that were leased last. The next lease begins after that
// address: other hosts may still have the name of the sandbox that had a freed one.
type Last map[netip.Prefix]netip.Addr

// Note notes the addresses of a state's endpoints that were not leased before and that the state does not request.
func (l Last) Note(s model.State, before, after Leases) {
	for _, e := range s.Endpoints {
		n, _ := s.Network(e.Network)
		if n.Origin != model.FromCluster || len(e.Addresses) > 0 {
			continue
		}
		for _, a := range after[e.Name] {
			i := slices.IndexFunc(n.Subnets, func(sub model.Subnet) bool { return sub.Prefix.Contains(a) })
			if i >= 0 && !slices.Contains(before[e.Name], a) {
				l[n.Subnets[i].Prefix] = a
			}
		}
	}
}

// after returns the address after which the next lease of a subnet begins. It is not valid for the first address of
// the ranges: networks of this host alone lease the lowest free address. If the last address is not known, because
// the daemon was restarted, it is the highest that is leased.
func (l Last) after(n model.Network, sub model.Subnet, pools []netip.Prefix, current Leases) (last netip.Addr) {
	if n.Origin != model.FromCluster {
		return last
	}
	if last = l[sub.Prefix]; last.IsValid() {
		return last
	}
	for _, leased := range current {
		for _, a := range leased {
			if sub.Prefix.Contains(a) && last.Less(a) && slices.ContainsFunc(pools,
				func(p netip.Prefix) bool { return p.Contains(a) }) {
				last = a
			}
		}
	}
	return last
}

// Assign returns a copy of the state in which every endpoint of a network with
// subnets has one address per subnet, and the new leases. For each endpoint
// Assign uses the first of these that is possible: the addresses that the state
// requests, the current lease if it is still valid, the next free address (Last).
// Assign returns an error if a requested address is reserved for the host or a
// gateway, or if a subnet has no free address. It does not change its arguments.
func Assign(s model.State, current Leases, last Last) (model.State, Leases, error) {
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
			addrs, err := lease(n, e, current, last, taken)
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
func lease(n model.Network, e model.Endpoint, current Leases, last Last, taken map[netip.Addr]bool) ([]netip.Addr,
	error) {
	if len(e.Addresses) > 0 {
		return e.Addresses, nil
	}
	var addrs []netip.Addr
	for _, sub := range n.Subnets {
		pools, listed := n.Pools(sub), n.Listed()
		a, ok := renew(sub, pools, current[e.Name], taken)
		if !ok {
			a, ok = Next(pools, last.after(n, sub, pools, current), func(a netip.Addr) bool {
				return !taken[a] && sub.Usable(a) && !slices.Contains(listed, a) // another host has those that are listed
			})
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

// Next returns the first free address of the ranges after an address, and begins again with the first range at the
// end. If the ranges do not contain the address, it begins with the first range.
func Next(pools []netip.Prefix, after netip.Addr, free func(netip.Addr) bool) (netip.Addr, bool) {
	at := max(0, slices.IndexFunc(pools, func(p netip.Prefix) bool { return p.Contains(after) }))
	for i := range len(pools) + 1 { // the first one twice
		pool := pools[(at+i)%len(pools)]
		a := pool.Addr()
		if i == 0 && pool.Contains(after) {
			a = after.Next()
		}
		for ; pool.Contains(a); a = a.Next() {
			if free(a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
