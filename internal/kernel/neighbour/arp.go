package neighbour

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
)

// An ARP packet of Ethernet and IPv4 (RFC 826): 8 bytes of header, then the
// sender's and the target's hardware and protocol addresses.
const arpLen = 28

var arpHeader = []byte{0, 1, 8, 0, 6, 4, 0}

const (
	arpRequest = 1
	arpReply   = 2
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// probe returns an ARP probe for an address: a request with the unspecified
// sender address.
func probe(sender net.HardwareAddr, address netip.Addr) []byte {
	b := append(bytes.Clone(arpHeader), arpRequest)
	b = append(b, sender...)
	b = append(b, make([]byte, 4+6)...)
	return append(b, address.AsSlice()...)
}

// Gratuitous returns the frame of a gratuitous ARP request or reply (RFC 5227, section 3): sender and target are the
// address.
func Gratuitous(address netip.Addr, mac net.HardwareAddr, reply bool) []byte {
	operation, target := byte(arpRequest), make(net.HardwareAddr, len(mac))
	if reply {
		operation, target = arpReply, mac
	}
	b := append(slices.Concat(broadcast, mac, []byte{8, 6}, arpHeader), operation)
	b = append(append(b, mac...), address.AsSlice()...)
	return append(append(b, target...), address.AsSlice()...)
}

// claimed decodes an ARP packet of a host that has an address or probes for it.
func claimed(b []byte) (Claim, bool) {
	if len(b) < arpLen || !bytes.Equal(b[:7], arpHeader) || (b[7] != arpRequest && b[7] != arpReply) {
		return Claim{}, false
	}
	c := Claim{Address: netip.AddrFrom4([4]byte(b[14:18])), By: bytes.Clone(b[8:14])}
	if c.Address.IsUnspecified() {
		c.Address, c.Probing = netip.AddrFrom4([4]byte(b[24:28])), true
	}
	return c, !c.Probing || b[7] == arpRequest
}
