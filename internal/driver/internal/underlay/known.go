package underlay

import (
	"hash/fnv"
	"net/netip"
	"slices"

	"fairlead/internal/driver"
	"fairlead/internal/model"
)

// Place is a known hardware address, the host that it is on, and its IP addresses.
type Place struct {
	MAC       string
	Host      netip.Addr
	Addresses []netip.Addr
}

// Known lists the addresses of sandboxes on other hosts, and those of the hosts in
// the network.
func (u Underlay) Known(n model.Network) []Place {
	var all []Place
	for _, p := range u.Peers {
		if own := p.Own(n); len(own) > 0 {
			all = append(all, Place{driver.MAC(own[0]), p.Address, own})
		}
		underlay := p.Underlay()
		for i, e := range p.Endpoints {
			mac := e.MAC
			if mac == "" {
				mac = driver.MAC(e.Addresses...)
			}
			all = append(all, Place{mac, underlay[i%len(underlay)], e.Addresses})
		}
	}
	return all
}

// Ranged lists the addresses of the other hosts' ranges, except for those of hosts and
// of endpoints that a peer lists.
func (u Underlay) Ranged(n model.Network) []Place {
	listed := map[netip.Addr]bool{}
	for _, p := range n.Overlay.Peers {
		for _, a := range p.Own(n) {
			listed[a] = true
		}
		for _, e := range p.Endpoints {
			for _, a := range e.Addresses {
				listed[a] = true
			}
		}
	}
	var all []Place
	for _, p := range u.Peers {
		for _, r := range p.Ranges {
			for a := r.Masked().Addr(); r.Contains(a); a = a.Next() {
				if n.Subnets[0].Usable(a) && !listed[a] {
					all = append(all, Place{driver.MAC(a), p.Address, []netip.Addr{a}})
				}
			}
		}
	}
	return all
}

// Placed is a range of addresses and the host that has it. The host is invalid if it is
// this one.
type Placed struct {
	Prefix netip.Prefix
	Host   netip.Addr
}

// Placed lists the other hosts' ranges, and the listed endpoints that are outside the
// ranges of their host, sorted by prefix. It lists none if the overlay does not forward by
// ranges, if it is encrypted, or if the datagrams need another link layer than IPv4 and
// Ethernet, or a certain link.
func (u Underlay) Placed(n model.Network) []Placed {
	if !n.Overlay.ByRange || n.Overlay.Encrypt || u.Link != "" || !u.ethernet || !u.Local.Is4() ||
		u.Local.IsUnspecified() {
		return nil
	}
	hosts := map[netip.Prefix]netip.Addr{}
	for _, p := range n.Overlay.Peers {
		host := p.Address
		if host == u.Self.Address {
			host = netip.Addr{}
		}
		for _, r := range p.Ranges {
			if host.IsValid() {
				hosts[r.Masked()] = host
			}
		}
		for _, e := range p.Endpoints {
			for _, a := range e.Addresses {
				if !slices.ContainsFunc(p.Ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
					hosts[netip.PrefixFrom(a, a.BitLen())] = host
				}
			}
		}
	}
	all := make([]Placed, 0, len(hosts))
	for prefix, host := range hosts {
		all = append(all, Placed{prefix, host})
	}
	slices.SortFunc(all, func(a, b Placed) int { return a.Prefix.Compare(b.Prefix) })
	return all
}

// Complete returns the network with this host's ranges.
func (u Underlay) Complete(n model.Network) model.Network {
	n.Subnets = slices.Clone(n.Subnets)
	for _, r := range u.Self.Ranges {
		i := slices.IndexFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Overlaps(r) })
		switch {
		case i < 0, n.Subnets[i].Range == r, slices.Contains(n.FurtherRanges, r): // it has it already
		case n.Subnets[i].Range.IsValid():
			n.FurtherRanges = append(slices.Clip(n.FurtherRanges), r)
		default:
			n.Subnets[i].Range = r
		}
	}
	return n
}

// LinkLocal returns the host's IPv6 link-local address in the network. Its last 64
// bits are those of the host's IPv6 address, so that no two hosts have the same.
func LinkLocal(n model.Network) netip.Prefix {
	for _, s := range n.Subnets {
		if a := s.HostAddress(); a.Is6() {
			b := a.As16()
			copy(b[:8], linkLocalNet)
			return netip.PrefixFrom(netip.AddrFrom16(b), 64)
		}
	}
	return driver.LinkLocal
}

// linkLocalNet is fe80::/64.
var linkLocalNet = []byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0}

// Inner returns a host's address on the WireGuard link of an encrypted overlay. It
// is derived from a, the host's address on the underlay.
func Inner(a netip.Addr) netip.Addr {
	h := fnv.New64a()
	h.Write(a.AsSlice())
	return netip.AddrFrom16([16]byte(append(linkLocalNet[:8:8], h.Sum(nil)...)))
}
