package proxy

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// sockaddr is an IPv4 or IPv6 address and port as the kernel writes it. It
// is comparable, and unused bytes are zero.
type sockaddr struct {
	raw [unix.SizeofSockaddrInet6]byte
	len uint32
}

// Offsets in sockaddr_in and sockaddr_in6.
const (
	portAt  = 2
	addr4At = 4
	addr6At = 8
	scopeAt = 24
)

// newSockaddr encodes addr and port; the zero Addr is ::.
func newSockaddr(addr netip.Addr, port uint16) (sockaddr, error) {
	var s sockaddr
	if addr.Is4() {
		s.len = unix.SizeofSockaddrInet4
		binary.NativeEndian.PutUint16(s.raw[:], unix.AF_INET)
		copy(s.raw[addr4At:], addr.AsSlice())
		return s.withPort(port), nil
	}
	scope, err := scopeID(addr.Zone())
	if err != nil {
		return s, fmt.Errorf("use address %s: %w", addr, err)
	}
	s.len = unix.SizeofSockaddrInet6
	binary.NativeEndian.PutUint16(s.raw[:], unix.AF_INET6)
	copy(s.raw[addr6At:], addr.AsSlice())
	binary.NativeEndian.PutUint32(s.raw[scopeAt:], scope)
	return s.withPort(port), nil
}

// scopeID converts a zone (an interface's name or index) to a scope id.
func scopeID(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	link, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, err
	}
	return uint32(link.Index), nil
}

// withPort returns s with another port.
func (s sockaddr) withPort(port uint16) sockaddr {
	binary.BigEndian.PutUint16(s.raw[portAt:], port)
	return s
}

// everywhere returns the wildcard address of s's family.
func (s sockaddr) everywhere() sockaddr {
	any := sockaddr{len: s.len}
	copy(any.raw[:portAt], s.raw[:portAt])
	return any
}

// family returns AF_INET or AF_INET6.
func (s *sockaddr) family() int { return int(binary.NativeEndian.Uint16(s.raw[:])) }

// addrPort decodes s, without its scope; an IPv4-mapped IPv6 address becomes
// an IPv4 address.
func (s *sockaddr) addrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.raw[portAt:])
	if s.family() == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.raw[addr4At:])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(s.raw[addr6At:])).Unmap(), port)
}
