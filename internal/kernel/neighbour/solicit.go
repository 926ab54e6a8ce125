package neighbour

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	ip6Len = 40
	// targetAt is where the address is that a message is about, after the type,
	// code, checksum and 4 bytes of flags; options follow it.
	targetAt  = ip6Len + 8
	optionsAt = targetAt + 16
	// farthest is the hop limit, by which a message is known to be of this link.
	farthest = 255
)

// The options that tell a hardware address (RFC 4861, section 4.6.1).
const (
	sourceOption = 1
	targetOption = 2
)

// advertisements lets answers through, as a packet socket without a link layer
// sees them: from the header of IPv6 on.
var advertisements = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 6, Size: 1}, // the next header
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 3},
	bpf.LoadAbsolute{Off: ip6Len, Size: 1}, // the type
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(ipv6.ICMPTypeNeighborAdvertisement), SkipTrue: 1},
	bpf.RetConstant{Val: 1 << 16},
	bpf.RetConstant{Val: 0},
}

// ownAddress is the link's link-local address, in the calling thread's
// namespace: every answer to it stays on the link.
func ownAddress(link *net.Interface) (netip.Addr, error) {
	all, err := link.Addrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("link %s has no IPv6 address to ask from: ip -6 address add fe80::1/64 dev %s", link.Name, link.Name)
}

// solicitation asks for an address, and goes to those whose address ends in the
// same way (RFC 4291, section 2.7.1).
func solicitation(own net.HardwareAddr, from, address netip.Addr) ([]byte, net.HardwareAddr, error) {
	of := address.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], of[13:])
	body := append(make([]byte, 4), of[:]...)
	body = append(body, sourceOption, 1)
	body = append(body, own...)
	m := icmp.Message{Type: ipv6.ICMPTypeNeighborSolicitation, Body: &icmp.RawBody{Data: body}}
	payload, err := m.Marshal(icmp.IPv6PseudoHeader(from.AsSlice(), group[:]))
	if err != nil {
		return nil, nil, err
	}
	b := binary.BigEndian.AppendUint16([]byte{6 << 4, 0, 0, 0}, uint16(len(payload)))
	b = append(b, unix.IPPROTO_ICMPV6, farthest)
	b = append(append(b, from.AsSlice()...), group[:]...)
	return append(b, payload...), append(net.HardwareAddr{0x33, 0x33}, group[12:]...), nil
}

// advertised reads who has an address. One that does not tell its hardware
// address has that of the frame.
func advertised(b []byte, from net.Addr) (Claim, bool) {
	if len(b) < optionsAt || b[7] != farthest || b[ip6Len] != byte(ipv6.ICMPTypeNeighborAdvertisement) {
		return Claim{}, false
	}
	c := Claim{Address: netip.AddrFrom16([16]byte(b[targetAt:optionsAt]))}
	if frame, ok := from.(*packet.Addr); ok {
		c.By = bytes.Clone(frame.HardwareAddr)
	}
	for options := b[optionsAt:]; len(options) >= 8 && options[1] > 0; {
		if options[0] == targetOption {
			c.By = bytes.Clone(options[2:8])
		}
		options = options[min(8*int(options[1]), len(options)):]
	}
	return c, len(c.By) == len(broadcast)
}
