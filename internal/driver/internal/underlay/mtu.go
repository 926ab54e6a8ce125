package underlay

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/model"
)

// maxPacket is the size of the largest IPv4 packet in bytes.
const maxPacket = 65535

// Room returns the largest MTU that the network can have on this underlay, in
// bytes.
func (u Underlay) Room(n model.Network) int { return u.mtu - n.Overlay.Overhead() }

// Check returns an error for each setting of the network that does not fit the
// underlay.
func (u Underlay) Check(n model.Network) error { return errors.Join(u.checkMTU(n), u.checkRanges(n)) }

// checkMTU returns an error if the network's packets do not fit the underlay.
func (u Underlay) checkMTU(n model.Network) error {
	room := u.Room(n)
	if n.MTU > room {
		return fmt.Errorf("mtu %d: the underlay carries packets of %d bytes, and the overlay takes %d of them: the largest that fits is %d; leave mtu out to get it, or raise the underlay's to %d",
			n.MTU, u.mtu, n.Overlay.Overhead(), room, n.MTU+n.Overlay.Overhead())
	}
	if least := n.Overlay.MinUnderlayMTU(); n.Overlay.Encrypt && u.mtu < least {
		return fmt.Errorf("encrypt: the underlay carries packets of %d bytes, and an encrypted overlay needs %d: "+
			"raise the underlay's mtu to %d", u.mtu, least, least)
	}
	for _, s := range n.Subnets {
		if s.Prefix.Addr().Is6() && room < model.MinIPv6MTU {
			return fmt.Errorf("subnet %s: the underlay carries packets of %d bytes, of which the overlay leaves %d, and IPv6 needs %d: raise the underlay's mtu to %d, or leave the IPv6 subnet out",
				s.Prefix, u.mtu, room, model.MinIPv6MTU, model.MinIPv6MTU+n.Overlay.Overhead())
		}
	}
	return nil
}

// checkRanges returns an error unless this host has its own part of each subnet:
// each host of an overlay is the gateway of its sandboxes and allocates their
// addresses.
func (u Underlay) checkRanges(n model.Network) error {
	for _, s := range n.Subnets {
		other := s.Range.IsValid() && !slices.Contains(u.Self.Ranges, s.Range)
		switch {
		case len(u.Self.Ranges) > 0 && (other || s.Address.IsValid()):
			return fmt.Errorf("subnet %s: the list of peers gives this host's range: leave range and address out",
				s.Prefix)
		case len(u.Self.Ranges) == 0 && !s.Range.IsValid() && !s.Address.IsValid():
			return fmt.Errorf("subnet %s: every host of an overlay needs its own part of the subnet: list all hosts with ranges as peers, this host too, or set the range of the subnet on this host", s.Prefix)
		}
	}
	return nil
}
