package model

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
)

// The default UDP ports of an overlay: that of VXLAN (RFC 7348) and the customary
// one of WireGuard.
const (
	PortVXLAN     = 4789
	PortWireGuard = 51820
)

// MinIPv6MTU is the minimum MTU of IPv6 in bytes (RFC 8200). A link with less has no IPv6.
const MinIPv6MTU = 1280

// The sizes of headers in a packet of the underlay, in bytes.
const (
	ipv4Header = 20
	ipv6Header = 40
	// vxlanHeaders are those of UDP, VXLAN and the inner Ethernet frame.
	vxlanHeaders = 8 + 8 + 14
	// wireguardHeaders are that of UDP, and WireGuard's with its authentication
	// tag (wireguard.com/papers/wireguard.pdf, 5.4.6).
	wireguardHeaders = 8 + 16 + 16
)

// TunnelOverhead returns the size of the headers that VXLAN adds to a packet, in
// bytes.
func TunnelOverhead(v4 bool) int {
	if v4 {
		return ipv4Header + vxlanHeaders
	}
	return ipv6Header + vxlanHeaders
}

// Overhead returns the size of the overlay's headers in a packet of the underlay,
// in bytes.
func (o Overlay) Overhead() int {
	if !o.Encrypt {
		return TunnelOverhead(o.IPv4())
	}
	return o.wireguardOverhead() + TunnelOverhead(false)
}

// wireguardOverhead returns the size of the headers that WireGuard adds to a packet, in bytes.
func (o Overlay) wireguardOverhead() int {
	if o.IPv4() {
		return ipv4Header + wireguardHeaders
	}
	return ipv6Header + wireguardHeaders
}

// MinUnderlayMTU returns the smallest MTU of an underlay, in bytes. An encrypted overlay needs more than
// another one: its tunnel uses IPv6 addresses of the WireGuard link.
func (o Overlay) MinUnderlayMTU() int {
	if !o.Encrypt {
		return MinIPv6MTU
	}
	return MinIPv6MTU + o.wireguardOverhead()
}

// IPv4 reports whether the underlay is IPv4.
func (o Overlay) IPv4() bool {
	if o.Group.IsValid() {
		return o.Group.Is4()
	}
	return len(o.Peers) == 0 || o.Peers[0].Address.Is4()
}

// WirePort returns the UDP port that is visible on the underlay.
func (o Overlay) WirePort() uint16 {
	switch {
	case o.Port != 0:
		return o.Port
	case o.Encrypt:
		return PortWireGuard
	}
	return PortVXLAN
}

// maxVNI is the largest VXLAN network identifier: 24 bits (RFC 7348).
const maxVNI = 1<<24 - 1

// validateOverlay checks the parts of an overlay that do not depend on the host.
func (n Network) validateOverlay() error {
	o := n.Overlay
	switch {
	case !n.Traits().Overlay && !o.IsZero():
		return fmt.Errorf("overlay: only networks with driver %s have one, and this network has driver %s: omit it",
			OneOf(Drivers(func(t Traits) bool { return t.Overlay })), n.Driver)
	case !n.Traits().Overlay:
		return nil
	case o.VNI == 0 || o.VNI > maxVNI:
		return fmt.Errorf("vni %d: want 1 to %d, the same on all hosts of the overlay", o.VNI, maxVNI)
	case len(o.Peers) == 0 && !o.Group.IsValid():
		return errors.New("overlay: list the hosts as peers, or name a multicast group that finds them")
	case o.Group.IsValid() && (!o.Group.IsMulticast() || o.Group.Zone() != ""):
		return fmt.Errorf("group %s: want a multicast address, e.g. 239.0.0.99 or ff05::99", o.Group)
	case o.Encrypt && !path.IsAbs(o.KeyFile):
		return fmt.Errorf("key file %q: an encrypted overlay needs the absolute path of a file with 32 secret bytes, the same on all hosts", o.KeyFile)
	case !o.Encrypt && o.KeyFile != "":
		return fmt.Errorf("key file %s: the overlay is not encrypted: set encrypt, or omit the file", o.KeyFile)
	case o.ByRange && (len(n.Subnets) != 1 || !n.Subnets[0].Prefix.Addr().Is4() || o.Group.IsValid()):
		return errors.New("byRange: want peers, and one IPv4 subnet")
	case o.UnderlayMTU != 0 && o.UnderlayMTU < o.MinUnderlayMTU():
		return fmt.Errorf("underlayMTU %d: want at least %d", o.UnderlayMTU, o.MinUnderlayMTU())
	case o.Encrypt && o.Group.IsValid():
		return errors.New("group: WireGuard carries no multicast: list the hosts of an encrypted overlay as peers")
	}
	return errors.Join(n.validatePeers(), n.validatePeerEndpoints(), o.validateKeys())
}

// wireGuardKeyLen is the length of a WireGuard key in bytes.
const wireGuardKeyLen = 32

// ValidPublicKey returns an error if the text is no WireGuard key in base64.
func ValidPublicKey(text string) error {
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != wireGuardKeyLen || len(bytes.Trim(key, "\x00")) == 0 {
		return fmt.Errorf("public key %.64q: want a WireGuard key in base64", text)
	}
	return nil
}

// validateKeys checks the peers' public keys.
func (o Overlay) validateKeys() error {
	holder := map[string]netip.Addr{}
	for _, p := range o.Peers {
		switch other, taken := holder[p.PublicKey]; {
		case (p.PublicKey == "") != (o.Peers[0].PublicKey == ""):
			return fmt.Errorf("peer %s: either all peers have public keys, or none", p.Address)
		case p.PublicKey == "":
			continue
		case !o.Encrypt:
			return fmt.Errorf("peer %s: the overlay is not encrypted: set encrypt, or omit the public key", p.Address)
		case taken:
			return fmt.Errorf("peer %s has the public key of peer %s", p.Address, other)
		}
		holder[p.PublicKey] = p.Address
		if err := ValidPublicKey(p.PublicKey); err != nil {
			return fmt.Errorf("peer %s: %w", p.Address, err)
		}
	}
	return nil
}

// validatePeers checks the peers' addresses and ranges.
func (n Network) validatePeers() error {
	var errs []error
	seen := map[netip.Addr]bool{}
	v4 := n.Overlay.Group.Is4()
	if len(n.Overlay.Peers) > 0 && !n.Overlay.Group.IsValid() {
		v4 = n.Overlay.Peers[0].Address.Is4()
	}
	for _, p := range n.Overlay.Peers {
		for _, a := range p.Underlay() {
			switch {
			case !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() ||
				a.IsLoopback() || a.IsLinkLocalUnicast():
				errs = append(errs, fmt.Errorf("peer %s: want the address of a host, e.g. 192.0.2.1", a))
			case seen[a]:
				errs = append(errs, fmt.Errorf("peer %s is listed twice", a))
			case a.Is4() != v4:
				errs = append(errs,
					fmt.Errorf("peer %s: all hosts of an overlay must use the same address family, and other peers use the other one", a))
			}
			seen[a] = true
		}
		if len(p.Further) > 0 && n.Overlay.Encrypt {
			errs = append(errs,
				fmt.Errorf("peer %s: a host of an encrypted overlay has only one address: omit the others", p.Address))
		}
		errs = append(errs, n.validateRanges(p))
	}
	return errors.Join(errs...)
}

func (n Network) validateRanges(p Peer) error {
	if len(p.Ranges) == 0 {
		return nil
	}
	for _, r := range p.Ranges {
		if !r.IsValid() || !slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.holds(r) }) {
			return fmt.Errorf("peer %s: range %s: want a part of a subnet of the network", p.Address, r)
		}
		for _, o := range n.Overlay.Peers {
			if o.Address != p.Address && slices.ContainsFunc(o.Ranges, r.Overlaps) {
				return fmt.Errorf("peer %s: range %s overlaps a range of peer %s: each host needs its own range",
					p.Address, r, o.Address)
			}
		}
	}
	for _, s := range n.Subnets {
		if !slices.ContainsFunc(p.Ranges, s.holds) {
			return fmt.Errorf("peer %s: want a range in each of the %d subnets, or none", p.Address, len(n.Subnets))
		}
	}
	return nil
}

func (n Network) validatePeerEndpoints() error {
	var errs []error
	seen := map[netip.Addr]bool{}
	for _, p := range n.Overlay.Peers {
		for _, e := range p.Endpoints {
			if e.MAC != "" && !unicast(e.MAC) {
				errs = append(errs,
					fmt.Errorf("peer %s: mac %q: want a unicast address of six bytes, e.g. 02:42:ac:11:00:02",
						p.Address, e.MAC))
			}
			if len(e.Addresses) == 0 {
				errs = append(errs, fmt.Errorf("peer %s: an endpoint has no address: set one, or omit the endpoint",
					p.Address))
			}
			for _, a := range e.Addresses {
				if seen[a] {
					errs = append(errs, fmt.Errorf("peer %s: endpoint %s is listed twice", p.Address, a))
				}
				seen[a] = true
				if !slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.Prefix.Contains(a) }) {
					errs = append(errs, fmt.Errorf("peer %s: endpoint %s is in no subnet of the network", p.Address, a))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// holds reports whether the range is a part of the subnet.
func (s Subnet) holds(r netip.Prefix) bool {
	return s.Prefix.Overlaps(r) && r.Bits() >= s.Prefix.Bits()
}

// Listed returns the addresses of single endpoints on other hosts. They can be in a range of
// this host although another host has them.
func (n Network) Listed() []netip.Addr {
	var all []netip.Addr
	for _, r := range n.Remote {
		if r.To.IsSingleIP() {
			all = append(all, r.To.Addr())
		}
	}
	for _, p := range n.Overlay.Peers {
		for _, e := range p.Endpoints {
			all = append(all, e.Addresses...)
		}
	}
	return all
}

// Own returns the peer's addresses in the network's subnets, if its ranges are
// known.
func (p Peer) Own(n Network) []netip.Addr {
	var own []netip.Addr
	for _, s := range n.Subnets {
		if i := slices.IndexFunc(p.Ranges, s.holds); i >= 0 {
			own = append(own, Subnet{Prefix: s.Prefix, Range: p.Ranges[i]}.HostAddress())
		}
	}
	return own
}
