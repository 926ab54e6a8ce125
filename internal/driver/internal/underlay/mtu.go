package underlay

import (
	"errors"
	"fmt"

	"fairlead/internal/model"
)

// The bytes that headers take from a packet of the underlay.
const (
	ipv4Header = 20
	ipv6Header = 40
	// vxlanHeaders are those of UDP, VXLAN and the inner Ethernet frame.
	vxlanHeaders = 8 + 8 + 14
	// wireguardHeaders are that of UDP, and WireGuard's with its authentication
	// tag (wireguard.com/papers/wireguard.pdf, 5.4.6).
	wireguardHeaders = 8 + 16 + 16

	// maxPacket is the largest IPv4 packet, and minIPv6 the least MTU that IPv6
	// lives with (RFC 8200).
	maxPacket = 65535
	minIPv6   = 1280
)

// TunnelOverhead is what VXLAN takes from a packet.
func TunnelOverhead(v4 bool) int {
	if v4 {
		return ipv4Header + vxlanHeaders
	}
	return ipv6Header + vxlanHeaders
}

// overhead is what the overlay takes from a packet of the underlay.
func overhead(o model.Overlay) int {
	if !o.Encrypt {
		return TunnelOverhead(isV4(o))
	}
	outer := ipv6Header
	if isV4(o) {
		outer = ipv4Header
	}
	return outer + wireguardHeaders + TunnelOverhead(false)
}

// Room is the largest MTU that the underlay leaves to the network.
func (u Underlay) Room(n model.Network) int { return u.mtu - overhead(n.Overlay) }

// Check says what of the network the underlay cannot carry.
func (u Underlay) Check(n model.Network) error { return errors.Join(u.checkMTU(n), u.checkRanges(n)) }

// checkMTU says whether the network's packets fit through the underlay.
func (u Underlay) checkMTU(n model.Network) error {
	room := u.Room(n)
	if n.MTU > room {
		return fmt.Errorf("mtu %d: the underlay carries packets of %d bytes, and the overlay takes %d of them: the largest that fits is %d; leave mtu out to get it, or raise the underlay's to %d",
			n.MTU, u.mtu, overhead(n.Overlay), room, n.MTU+overhead(n.Overlay))
	}
	for _, s := range n.Subnets {
		if s.Prefix.Addr().Is6() && room < minIPv6 {
			return fmt.Errorf("subnet %s: the underlay carries packets of %d bytes, of which the overlay leaves %d, and IPv6 needs %d: raise the underlay's mtu to %d, or leave the IPv6 subnet out",
				s.Prefix, u.mtu, room, minIPv6, minIPv6+overhead(n.Overlay))
		}
	}
	return nil
}

// checkRanges says whether the host has addresses of its own: each host of an
// overlay is the gateway of its sandboxes and leases for itself.
func (u Underlay) checkRanges(n model.Network) error {
	for _, s := range n.Subnets {
		switch {
		case len(u.Self.Ranges) > 0 && (s.Range.IsValid() || s.Address.IsValid()):
			return fmt.Errorf("subnet %s: this host's range is among the peers: leave range and address out", s.Prefix)
		case len(u.Self.Ranges) == 0 && !s.Range.IsValid() && !s.Address.IsValid():
			return fmt.Errorf("subnet %s: every host of an overlay needs a part of its own: list ranges with the peers, this host among them, or give the subnet a range here", s.Prefix)
		}
	}
	return nil
}
