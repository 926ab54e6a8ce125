package ipvs

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
)

// Destination is a real server of a service.
type Destination struct {
	At netip.AddrPort
	// Forward is one of NAT, Local, Tunnel and Direct. The kernel uses Local instead
	// of any other if the address is one of the host's.
	Forward uint32
	Weight  uint32
	// With Upper or more connections the destination gets no new ones until it has
	// fewer than Lower. 0 means no limit.
	Upper, Lower uint32
	// TunnelType is IPIP or GUE. Only GUE uses TunnelPort and TunnelFlags.
	TunnelType  uint8
	TunnelPort  uint16
	TunnelFlags uint16
	// Active counts established connections, Inactive those in any other state,
	// among them all of UDP. Persistent counts the persistence templates of clients.
	Active, Inactive, Persistent uint32
	Stats                        Stats
}

// only writes the fields that identify the destination.
func (d Destination) only() part { return nest(attrDest, d.write) }

func (d Destination) write(ae *netlink.AttributeEncoder) {
	ae.Uint16(destFamily, family(d.At.Addr()))
	ae.Bytes(destAddr, address(d.At.Addr()))
	ae.Bytes(destPort, binary.BigEndian.AppendUint16(nil, d.At.Port()))
}

// full writes the whole destination, without its counters.
func (d Destination) full() part {
	return nest(attrDest, func(ae *netlink.AttributeEncoder) {
		d.write(ae)
		ae.Uint32(destForward, d.Forward)
		ae.Uint32(destWeight, d.Weight)
		ae.Uint32(destUpper, d.Upper)
		ae.Uint32(destLower, d.Lower)
		ae.Uint8(destTunnelType, d.TunnelType)
		ae.Bytes(destTunnelPort, binary.BigEndian.AppendUint16(nil, d.TunnelPort))
		ae.Uint16(destTunnelFlags, d.TunnelFlags)
	})
}

func decodeDestinations(messages []genetlink.Message, of ID) ([]Destination, error) {
	return decodeAll(messages, attrDest, func(ad *netlink.AttributeDecoder) (Destination, error) {
		return decodeDestination(ad, family(of.At.Addr()))
	})
}

// decodeDestination decodes a destination. Its address has the family af, that of
// the service, unless the message has another one.
func decodeDestination(ad *netlink.AttributeDecoder, af uint16) (Destination, error) {
	var d Destination
	var addr []byte
	var port uint16
	numbers := map[uint16]*uint32{destWeight: &d.Weight, destUpper: &d.Upper, destLower: &d.Lower,
		destActive:   &d.Active,
		destInactive: &d.Inactive, destPersistent: &d.Persistent, destForward: &d.Forward}
	for ad.Next() {
		switch kind := ad.Type(); kind {
		case destFamily:
			af = ad.Uint16()
		case destAddr:
			addr = ad.Bytes()
		case destPort:
			port = bigEndian(ad.Bytes())
		case destTunnelType:
			d.TunnelType = ad.Uint8()
		case destTunnelPort:
			d.TunnelPort = bigEndian(ad.Bytes())
		case destTunnelFlags:
			d.TunnelFlags = ad.Uint16()
		case destStats64:
			ad.Nested(d.Stats.decode)
		default:
			if number := numbers[kind]; number != nil {
				*number = ad.Uint32()
			}
		}
	}
	a, err := toAddr(af, addr, false)
	d.At = netip.AddrPortFrom(a, port)
	d.Forward &= forwardMask
	return d, errors.Join(ad.Err(), err)
}
