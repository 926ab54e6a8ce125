package neighbour

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

const (
	ip6Len = 40
	// targetAt is the offset of the target address, after the type, code, checksum
	// and 4 bytes of flags. Options follow it.
	targetAt  = ip6Len + 8
	optionsAt = targetAt + 16
	// maxHopLimit is the hop limit of all these messages: a receiver sees that no
	// router has forwarded the message.
	maxHopLimit = 255
)

// The options that contain a hardware address (RFC 4861, section 4.6.1).
const (
	sourceOption = 1
	targetOption = 2
)

// advertisements is a filter that accepts neighbour advertisements. The packets
// begin with the IPv6 header.
var advertisements = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 6, Size: 1}, // the next header
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 3},
	bpf.LoadAbsolute{Off: ip6Len, Size: 1}, // the type
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(ipv6.ICMPTypeNeighborAdvertisement), SkipTrue: 1},
	bpf.RetConstant{Val: 1 << 16},
	bpf.RetConstant{Val: 0},
}

// linkLocalAddress returns the link's link-local address, in the calling thread's
// namespace. Answers to it stay on the link.
func linkLocalAddress(link *net.Interface) (netip.Addr, error) {
	all, err := link.Addrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("link %s has no IPv6 address to ask from: ip -6 address add fe80::1/64 dev %s",
		link.Name, link.Name)
}

// solicitation returns a solicitation for an address, and the hardware address of
// the address's solicited-node multicast group (RFC 4291, section 2.7.1).
func solicitation(sender net.HardwareAddr, from, address netip.Addr) ([]byte, net.HardwareAddr, error) {
	target := address.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], target[13:])
	b, err := message(ipv6.ICMPTypeNeighborSolicitation, from.AsSlice(), group[:],
		slices.Concat(make([]byte, 4), target[:], []byte{sourceOption, 1}, sender))
	return b, append(net.HardwareAddr{0x33, 0x33}, group[12:]...), err
}

// Advertisement returns the frame of an unsolicited neighbour advertisement (RFC 4861, section 7.2.6) that overrides
// earlier ones, from the address to all nodes.
func Advertisement(address netip.Addr, mac net.HardwareAddr) ([]byte, error) {
	const override = 0x20
	b, err := message(ipv6.ICMPTypeNeighborAdvertisement, address.AsSlice(), netip.MustParseAddr("ff02::1").AsSlice(),
		slices.Concat([]byte{override, 0, 0, 0}, address.AsSlice(), []byte{targetOption, 1}, mac))
	return slices.Concat([]byte{0x33, 0x33, 0, 0, 0, 1}, mac, []byte{0x86, 0xdd}, b), err
}

// message returns an IPv6 packet with a message of Neighbor Discovery.
func message(kind ipv6.ICMPType, from, to, body []byte) ([]byte, error) {
	m := icmp.Message{Type: kind, Body: &icmp.RawBody{Data: body}}
	payload, err := m.Marshal(icmp.IPv6PseudoHeader(from, to))
	b := binary.BigEndian.AppendUint16([]byte{6 << 4, 0, 0, 0}, uint16(len(payload)))
	return slices.Concat(b, []byte{unix.IPPROTO_ICMPV6, maxHopLimit}, from, to, payload), err
}

// advertised decodes a neighbour advertisement. If it has no option with the
// hardware address, the claim gets that of the frame.
func advertised(b []byte, from net.Addr) (Claim, bool) {
	if len(b) < optionsAt || b[7] != maxHopLimit || b[ip6Len] != byte(ipv6.ICMPTypeNeighborAdvertisement) {
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
