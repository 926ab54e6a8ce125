package dhcp

import (
	"bytes"
	"net"
)

// An ARP packet of Ethernet and IPv4 (RFC 826): 8 bytes of header, then the
// sender's and the target's hardware and protocol addresses.
const arpLen = 28

var arpHeader = []byte{0, 1, 8, 0, 6, 4, 0}

const (
	arpRequest = 1
	arpReply   = 2
)

// arpProbe asks for an address without claiming one (RFC 5227, section 1.1).
func arpProbe(own net.HardwareAddr, address net.IP) []byte {
	b := append(bytes.Clone(arpHeader), arpRequest)
	b = append(b, own...)
	b = append(b, make([]byte, 4+6)...)
	return append(b, address.To4()...)
}

// claims reports whether a packet is of another host that has the address, or
// probes for it like us.
func claims(b []byte, own net.HardwareAddr, address net.IP) bool {
	if len(b) < arpLen || !bytes.Equal(b[:7], arpHeader) || bytes.Equal(b[8:14], own) {
		return false
	}
	sender, target := net.IP(b[14:18]), net.IP(b[24:28])
	probe := b[7] == arpRequest && sender.IsUnspecified() && target.Equal(address)
	return (b[7] == arpReply || b[7] == arpRequest) && sender.Equal(address) || probe
}
