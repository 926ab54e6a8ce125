package attack_test

import (
	"encoding/binary"
	"net/netip"

	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// The flags of a TCP segment.
const (
	syn = 0x02
	rst = 0x04
	ack = 0x10
)

// segment is a packet of TCP or UDP.
type segment struct {
	proto    model.Proto
	src, dst netip.AddrPort
	flags    byte
	seq      uint32
	payload  string
}

// transport returns the segment without its IP header, with its checksum.
func (s segment) transport() (number byte, b []byte) {
	if s.proto == model.TCP {
		b = make([]byte, 20, 20+len(s.payload))
		binary.BigEndian.PutUint32(b[4:], s.seq)
		b[12], b[13] = 5<<4, s.flags
		binary.BigEndian.PutUint16(b[14:], 65535)
		number = unix.IPPROTO_TCP
	} else {
		b = make([]byte, 8, 8+len(s.payload))
		binary.BigEndian.PutUint16(b[4:], uint16(8+len(s.payload)))
		number = unix.IPPROTO_UDP
	}
	binary.BigEndian.PutUint16(b, s.src.Port())
	binary.BigEndian.PutUint16(b[2:], s.dst.Port())
	b = append(b, s.payload...)
	at := map[byte]int{unix.IPPROTO_TCP: 16, unix.IPPROTO_UDP: 6}[number]
	binary.BigEndian.PutUint16(b[at:], checksum(pseudo(s.src.Addr(), s.dst.Addr(), number, len(b)), b))
	return number, b
}

// packet returns the segment as an IP packet.
func (s segment) packet() []byte {
	number, b := s.transport()
	return ip(s.src.Addr(), s.dst.Addr(), number, nil, b)
}

// ip returns an IP packet. The length of options, which are IPv4 options, is a multiple of 4 bytes.
func ip(src, dst netip.Addr, number byte, options, payload []byte) []byte {
	if src.Is6() {
		h := make([]byte, 40)
		h[0], h[6], h[7] = 6<<4, number, 64
		binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
		copy(h[8:], src.AsSlice())
		copy(h[24:], dst.AsSlice())
		return append(h, payload...)
	}
	h := make([]byte, 20, 20+len(options))
	h[8], h[9] = 64, number
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(options)+len(payload)))
	copy(h[12:], src.AsSlice())
	copy(h[16:], dst.AsSlice())
	h = append(h, options...)
	h[0] = 4<<4 | byte(len(h)/4)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, payload...)
}

// icmp returns an ICMP message as an IP packet. body follows the checksum.
func icmp(src, dst netip.Addr, kind, code byte, body []byte) []byte {
	m := append([]byte{kind, code, 0, 0}, body...)
	if src.Is4() {
		binary.BigEndian.PutUint16(m[2:], checksum(m))
		return ip(src, dst, unix.IPPROTO_ICMP, nil, m)
	}
	binary.BigEndian.PutUint16(m[2:], checksum(pseudo(src, dst, unix.IPPROTO_ICMPV6, len(m)), m))
	p := ip(src, dst, unix.IPPROTO_ICMPV6, nil, m)
	p[7] = 255
	return p
}

func pseudo(src, dst netip.Addr, number byte, length int) []byte {
	b := append(src.AsSlice(), dst.AsSlice()...)
	return append(b, 0, number, byte(length>>8), byte(length))
}

func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, b := range parts {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
		if len(b)%2 == 1 {
			sum += uint32(b[len(b)-1]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
