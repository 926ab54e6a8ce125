package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ID identifies a virtual service.
type ID struct {
	// Protocol is the IP protocol's number; 0 if the service has a Mark.
	Protocol uint16
	At       netip.AddrPort
	// Mark is the firewall mark of a service that has no address.
	Mark uint32
}

// Service is a virtual service.
type Service struct {
	ID
	Scheduler string
	// Flags may have any bits: the kernel keeps those that it does not know.
	Flags uint32
	// Timeout is that of persistence, in seconds.
	Timeout uint32
	// Bits is the prefix length for persistence: clients with the same prefix get
	// the same destination.
	Bits int
	// PE is the persistence engine, empty for none.
	PE    string
	Stats Stats
}

// Stats counts the traffic of a service or destination since it was created.
type Stats struct{ Conns, InPackets, OutPackets, InBytes, OutBytes uint64 }

// part writes one attribute of a message.
type part func(*netlink.AttributeEncoder)

func encode(parts ...part) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	for _, p := range parts {
		p(ae)
	}
	return ae.Encode()
}

// nest writes attributes inside an attribute of the kind.
func nest(kind uint16, write part) part {
	return func(ae *netlink.AttributeEncoder) {
		ae.Nested(kind, func(ae *netlink.AttributeEncoder) error {
			write(ae)
			return nil
		})
	}
}

// only writes the fields that identify the service.
func (id ID) only() part { return nest(attrService, id.write) }

func (id ID) write(ae *netlink.AttributeEncoder) {
	ae.Uint16(serviceFamily, family(id.At.Addr()))
	if id.Mark != 0 {
		ae.Uint32(serviceMark, id.Mark)
		return
	}
	ae.Uint16(serviceProtocol, id.Protocol)
	ae.Bytes(serviceAddr, address(id.At.Addr()))
	ae.Bytes(servicePort, binary.BigEndian.AppendUint16(nil, id.At.Port()))
}

// full writes the whole service.
func (s Service) full() part {
	return nest(attrService, func(ae *netlink.AttributeEncoder) {
		s.write(ae)
		ae.String(serviceScheduler, s.Scheduler)
		// struct ip_vs_flags: the flags, and the mask of those to change.
		flags := binary.NativeEndian.AppendUint32(nil, s.Flags)
		ae.Bytes(serviceFlags, binary.NativeEndian.AppendUint32(flags, ^uint32(0)))
		ae.Uint32(serviceTimeout, s.Timeout)
		ae.Bytes(serviceNetmask, s.netmask())
		if s.PE != "" {
			ae.String(servicePE, s.PE)
		}
	})
}

// netmask returns an IPv4 netmask, or the length of an IPv6 prefix.
func (s Service) netmask() []byte {
	if s.At.Addr().Is4() {
		return binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-s.Bits))
	}
	return binary.NativeEndian.AppendUint32(nil, uint32(s.Bits))
}

func family(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// address returns a union nf_inet_addr: 16 bytes, of which IPv4 uses the first
// four.
func address(a netip.Addr) []byte {
	b := make([]byte, 16)
	copy(b, a.AsSlice())
	return b
}

var errShort = errors.New("read IPVS: the kernel's message is truncated")

// decodeAll decodes the attributes of the kind in all messages.
func decodeAll[T any](messages []genetlink.Message, kind uint16,
	decode func(*netlink.AttributeDecoder) (T, error)) ([]T, error) {
	var all []T
	for _, m := range messages {
		err := nested(m.Data, kind, func(ad *netlink.AttributeDecoder) error {
			one, err := decode(ad)
			all = append(all, one)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func decodeServices(messages []genetlink.Message) ([]Service, error) {
	return decodeAll(messages, attrService, decodeService)
}

// nested calls fn inside each attribute of the kind.
func nested(message []byte, kind uint16, fn func(*netlink.AttributeDecoder) error) error {
	ad, err := netlink.NewAttributeDecoder(message)
	if err != nil {
		return fmt.Errorf("read IPVS: %w", err)
	}
	for ad.Next() {
		if ad.Type() == kind {
			ad.Nested(fn)
		}
	}
	return ad.Err()
}

func decodeService(ad *netlink.AttributeDecoder) (Service, error) {
	var s Service
	var af uint16
	var addr, netmask []byte
	var port uint16
	for ad.Next() {
		switch ad.Type() {
		case serviceFamily:
			af = ad.Uint16()
		case serviceProtocol:
			s.Protocol = ad.Uint16()
		case serviceAddr:
			addr = ad.Bytes()
		case servicePort:
			port = bigEndian(ad.Bytes())
		case serviceMark:
			s.Mark = ad.Uint32()
		case serviceScheduler:
			s.Scheduler = ad.String()
		case serviceFlags:
			if b := ad.Bytes(); len(b) >= 4 {
				s.Flags = binary.NativeEndian.Uint32(b) &^ hashed
			}
		case serviceTimeout:
			s.Timeout = ad.Uint32()
		case serviceNetmask:
			netmask = ad.Bytes()
		case servicePE:
			s.PE = ad.String()
		case serviceStats64:
			ad.Nested(s.Stats.decode)
		}
	}
	a, err := toAddr(af, addr, s.Mark != 0)
	s.At = netip.AddrPortFrom(a, port)
	s.Bits = bits(af, netmask)
	return s, errors.Join(ad.Err(), err)
}

// toAddr decodes an address. If it is optional and missing, the result is the
// unspecified address.
func toAddr(af uint16, b []byte, optional bool) (netip.Addr, error) {
	length := 16
	if af == unix.AF_INET {
		length = 4
	} else if af != unix.AF_INET6 {
		return netip.Addr{}, fmt.Errorf("read IPVS: address family %d is neither IPv4 nor IPv6", af)
	}
	if optional && b == nil {
		b = make([]byte, length)
	}
	if len(b) < length {
		return netip.Addr{}, errShort
	}
	a, _ := netip.AddrFromSlice(b[:length])
	return a, nil
}

// bits returns the prefix length of a netmask.
func bits(af uint16, netmask []byte) int {
	if len(netmask) < 4 {
		return 0
	}
	if af == unix.AF_INET6 {
		return int(min(binary.NativeEndian.Uint32(netmask), 128))
	}
	n := 0
	for mask := binary.BigEndian.Uint32(netmask); mask&(1<<31) != 0; mask <<= 1 {
		n++
	}
	return n
}

func bigEndian(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func (s *Stats) decode(ad *netlink.AttributeDecoder) error {
	fields := map[uint16]*uint64{statsConns: &s.Conns, statsInPackets: &s.InPackets, statsOutPackets: &s.OutPackets,
		statsInBytes: &s.InBytes, statsOutBytes: &s.OutBytes}
	for ad.Next() {
		if field := fields[ad.Type()]; field != nil {
			*field = ad.Uint64()
		}
	}
	return ad.Err()
}
