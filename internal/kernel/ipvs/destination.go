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
	// Forward is one of NAT, Local, Tunnel and Direct. The kernel makes Local of
	// any where the address is the host's own.
	Forward uint32
	Weight  uint32
	// Upper is the number of connections from which on it gets no more, until
	// they are fewer than Lower; 0 for none.
	Upper, Lower uint32
	// TunnelType is IPIP or GUE. The port and the flags are of GUE.
	TunnelType  uint8
	TunnelPort  uint16
	TunnelFlags uint16
	// Active connections are established, Inactive in any other state (all of
	// UDP are), and Persistent those of clients that persistence holds.
	Active, Inactive, Persistent uint32
	Stats                        Stats
}

// only writes what names the destination.
func (d Destination) only() part {
	return func(ae *netlink.AttributeEncoder) {
		ae.Nested(attrDest, func(ae *netlink.AttributeEncoder) error {
			d.write(ae)
			return nil
		})
	}
}

func (d Destination) write(ae *netlink.AttributeEncoder) {
	ae.Uint16(destFamily, family(d.At.Addr()))
	ae.Bytes(destAddr, address(d.At.Addr()))
	ae.Bytes(destPort, binary.BigEndian.AppendUint16(nil, d.At.Port()))
}

// full writes the whole destination, but what the kernel counts.
func (d Destination) full() part {
	return func(ae *netlink.AttributeEncoder) {
		ae.Nested(attrDest, func(ae *netlink.AttributeEncoder) error {
			d.write(ae)
			ae.Uint32(destForward, d.Forward)
			ae.Uint32(destWeight, d.Weight)
			ae.Uint32(destUpper, d.Upper)
			ae.Uint32(destLower, d.Lower)
			ae.Uint8(destTunnelType, d.TunnelType)
			ae.Bytes(destTunnelPort, binary.BigEndian.AppendUint16(nil, d.TunnelPort))
			ae.Uint16(destTunnelFlags, d.TunnelFlags)
			return nil
		})
	}
}

func decodeDestinations(messages []genetlink.Message, of ID) ([]Destination, error) {
	var all []Destination
	for _, m := range messages {
		err := nested(m.Data, attrDest, func(ad *netlink.AttributeDecoder) error {
			d, err := decodeDestination(ad, family(of.At.Addr()))
			all = append(all, d)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// decodeDestination reads one that is of the service's family unless it says
// otherwise.
func decodeDestination(ad *netlink.AttributeDecoder, af uint16) (Destination, error) {
	var d Destination
	var addr []byte
	var port uint16
	numbers := map[uint16]*uint32{destWeight: &d.Weight, destUpper: &d.Upper, destLower: &d.Lower, destActive: &d.Active,
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
