package underlay

import (
	"hash/fnv"
	"net/netip"

	"fairlead/internal/driver"
	"fairlead/internal/model"
)

// Place is a known hardware address, the host behind which it is, and the
// addresses that belong to it.
type Place struct {
	MAC       string
	Host      netip.Addr
	Addresses []netip.Addr
}

// Known lists the sandboxes of other hosts, and those hosts' own addresses.
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

// Own returns the subnet with the range that is this host's.
func (u Underlay) Own(s model.Subnet) model.Subnet {
	for _, r := range u.Self.Ranges {
		if s.Prefix.Overlaps(r) {
			s.Range = r
		}
	}
	return s
}

// LinkLocal is the host's IPv6 link-local address in the network. It ends as
// its IPv6 address does, so that no two hosts have the same.
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

// Inner is the address that a host of an encrypted overlay has on the
// WireGuard link. It follows from that on the underlay.
func Inner(a netip.Addr) netip.Addr {
	h := fnv.New64a()
	h.Write(a.AsSlice())
	return netip.AddrFrom16([16]byte(append(linkLocalNet[:8:8], h.Sum(nil)...)))
}
