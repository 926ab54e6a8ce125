package rawtcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// tcpHeader is the length in bytes of a TCP header without options. flagReset and
// flagAck are the flags RST and ACK (RFC 9293).
const (
	tcpHeader = 20
	flagReset = 0x04
	flagAck   = 0x10
)

// SendReset sends a TCP reset from an address that need not be the host's.
func SendReset(from, to netip.AddrPort, seq uint32) error {
	return sendSegment(from, to, flagReset, seq)
}

// sendSegment sends a TCP segment with one flag and data from an address that
// need not be the host's.
func sendSegment(from, to netip.AddrPort, flag byte, seq uint32, data ...byte) error {
	packet := append(make([]byte, tcpHeader), data...)
	binary.BigEndian.PutUint16(packet[0:], from.Port())
	binary.BigEndian.PutUint16(packet[2:], to.Port())
	binary.BigEndian.PutUint32(packet[4:], seq)
	packet[12], packet[13] = tcpHeader/4<<4, flag
	binary.BigEndian.PutUint16(packet[16:], transportChecksum(from.Addr(), to.Addr(), packet))
	if from.Addr().Is4() {
		return sendRaw(unix.AF_INET, append(ipv4Header(from.Addr(), to.Addr(), len(packet)), packet...),
			&unix.SockaddrInet4{Addr: to.Addr().As4()})
	}
	return sendRaw(unix.AF_INET6, append(ipv6Header(from.Addr(), to.Addr(), len(packet)), packet...),
		&unix.SockaddrInet6{Addr: to.Addr().As16()})
}

// hopLimit is the default TTL (RFC 1700).
const hopLimit = 64

// ipv4Header returns a header without identification and checksum: the kernel sets
// them (raw(7)).
func ipv4Header(from, to netip.Addr, payload int) []byte {
	h := make([]byte, 20)
	h[0] = 4<<4 | 5
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+payload))
	h[8], h[9] = hopLimit, unix.IPPROTO_TCP
	copy(h[12:], from.AsSlice())
	copy(h[16:], to.AsSlice())
	return h
}

func ipv6Header(from, to netip.Addr, payload int) []byte {
	h := make([]byte, 40)
	h[0] = 6 << 4
	binary.BigEndian.PutUint16(h[4:], uint16(payload))
	h[6], h[7] = unix.IPPROTO_TCP, hopLimit
	copy(h[8:], from.AsSlice())
	copy(h[24:], to.AsSlice())
	return h
}

func sendRaw(family int, packet []byte, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("open a raw socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, packet, 0, to); err != nil {
		return fmt.Errorf("send a TCP segment: %w", err)
	}
	return nil
}

// transportChecksum is the Internet checksum (RFC 1071) over the pseudo
// header and the segment.
func transportChecksum(from, to netip.Addr, segment []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(segment))
	for _, part := range [][]byte{from.AsSlice(), to.AsSlice(), segment} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// IgnoreUnreachable ignores the errors that occur if a reset has no route or is
// dropped by a firewall: there the reset would have no effect.
func IgnoreUnreachable(err error) error {
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETDOWN) ||
		errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}
