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

// Assign gives every endpoint of a network with subnets one address per subnet. on has
// the network of each endpoint. For each endpoint Assign uses the first of these that is
// possible: the addresses that the state requests, the current lease if it is still
// valid, the next free address (Last). It returns the leases, and the last ones of those
// that are new in networks of a cluster. Assign returns an error if a requested address is
// reserved for the host or a gateway, or if a subnet has no free address.
func Assign(s model.State, on []*model.Network, current Leases, last Last) (Leases, Last, error) {
	reserved := reserved(s)
	taken := maps.Clone(reserved)
	for _, e := range s.Endpoints {
		for _, a := range e.Addresses {
			taken[a] = true
		}
	}
	leases, fresh := Leases{}, Last{}
	// Endpoints with a current lease come first, so that a new endpoint never
	// gets the address of an endpoint that is later in the state.
	for _, renew := range []bool{true, false} {
		for i, e := range s.Endpoints {
			if (len(current[e.Name]) > 0) != renew {
				continue
			}
			addrs, err := lease(*on[i], e, current, last, taken, fresh)
			if i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return reserved[a] }); i >= 0 {
				err = fmt.Errorf("address %s is reserved for the host or the gateway: request another address",
					addrs[i])
			}
			if err != nil {
				return nil, nil, fmt.Errorf("lease address for endpoint %s: %w", e.Name, err)
			}
			s.Endpoints[i].Addresses, leases[e.Name] = addrs, addrs
		}
	}
	return leases, fresh, nil
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

// lease returns the addresses of one endpoint, and adds new ones to taken and fresh.
func lease(n model.Network, e model.Endpoint, current Leases, last Last, taken map[netip.Addr]bool,
	fresh Last) ([]netip.Addr, error) {
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
			if ok && n.Origin == model.FromCluster {
				fresh[sub.Prefix] = a
			}
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
