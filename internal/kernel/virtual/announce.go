package virtual

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Announce makes all hosts on the link send packets for the address to this host: with a gratuitous ARP
// request and a reply (RFC 5227, section 3; some hosts take only one of them), or with an
// unsolicited neighbour advertisement (RFC 4861, section 7.2.6). The fence drops it if the
// address is closed.
func (h *Handle) Announce(a netip.Addr, on Link) error {
	frames := [][]byte{gratuitousARP(a, on.MAC, 1), gratuitousARP(a, on.MAC, 2)}
	if a.Is6() {
		frame, err := advertisement(a, on.MAC)
		if err != nil {
			return fmt.Errorf("announce %s: %w", a, err)
		}
		frames = [][]byte{frame}
	}
	for _, f := range frames {
		if err := h.send(f, on); err != nil {
			return fmt.Errorf("announce %s on link %s: %w", a, on.Name, err)
		}
	}
	return nil
}

// send sends a frame with its Ethernet header on a link.
func (h *Handle) send(frame []byte, on Link) error {
	to := &unix.SockaddrLinklayer{Ifindex: on.Index, Halen: 6}
	copy(to.Addr[:], frame[:6])
	err := unix.Sendto(h.frames, frame, unix.MSG_DONTWAIT, to)
	if errors.Is(err, unix.ENETDOWN) {
		return nil // the link's message follows
	}
	return err
}

// gratuitousARP returns a frame in which sender and target are the address.
func gratuitousARP(a netip.Addr, mac net.HardwareAddr, operation byte) []byte {
	frame := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	frame = append(frame, mac...)
	frame = append(frame, 8, 6, 0, 1, 8, 0, 6, 4, 0, operation) // ARP of Ethernet and IPv4
	frame = append(frame, mac...)
	frame = append(frame, a.AsSlice()...)
	if operation == 1 {
		frame = append(frame, make([]byte, 6)...)
	} else {
		frame = append(frame, mac...)
	}
	return append(frame, a.AsSlice()...)
}

// advertisement returns a frame with an unsolicited neighbour advertisement that overrides
// earlier ones, from the address to all nodes.
func advertisement(a netip.Addr, mac net.HardwareAddr) ([]byte, error) {
	const override, targetOption, maxHopLimit = 0x20, 2, 255
	all := netip.MustParseAddr("ff02::1")
	body := append([]byte{override, 0, 0, 0}, a.AsSlice()...)
	body = append(body, targetOption, 1)
	body = append(body, mac...)
	m := icmp.Message{Type: ipv6.ICMPTypeNeighborAdvertisement, Body: &icmp.RawBody{Data: body}}
	payload, err := m.Marshal(icmp.IPv6PseudoHeader(a.AsSlice(), all.AsSlice()))
	if err != nil {
		return nil, err
	}
	frame := append([]byte{0x33, 0x33, 0, 0, 0, 1}, mac...)
	frame = append(frame, 0x86, 0xdd, 6<<4, 0, 0, 0)
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(payload)))
	frame = append(frame, unix.IPPROTO_ICMPV6, maxHopLimit)
	frame = append(append(frame, a.AsSlice()...), all.AsSlice()...)
	return append(frame, payload...), nil
}
