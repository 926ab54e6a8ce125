// Package nlutil has the helpers that the users of netlink share.
package nlutil

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"

	"fairlead/internal/model"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Protocols are the numbers of the IP protocols.
var Protocols = map[model.Proto]byte{model.TCP: unix.IPPROTO_TCP, model.UDP: unix.IPPROTO_UDP}

// SkipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h. It leaves out the
// IPv6 counters, which take the kernel most of the time. It does not leave out the
// counters of the link.
const SkipStats = 1 << 3

// Put sets a key of a map, which it makes if it is nil.
func Put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// Retry repeats a dump that is inconsistent because the table changed meanwhile
// (NLM_F_DUMP_INTR), at most ten times.
func Retry[T any](dump func() (T, error)) (T, error) {
	for range 10 {
		list, err := dump()
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			return list, err
		}
	}
	return dump()
}

// Absent reports whether the error means that the object, or the namespace or link
// that contains it, does not exist.
func Absent(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, os.ErrNotExist) ||
		errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)
}

// Attribute returns the value of a netlink attribute, or nil if it is missing. Each further kind is that of an
// attribute within the one before.
func Attribute(attrs []byte, kinds ...uint16) []byte {
	for _, wanted := range kinds {
		var found []byte
		Attributes(attrs, func(kind uint16, value []byte) {
			if kind == wanted && found == nil {
				found = value
			}
		})
		attrs = found
	}
	return attrs
}

// Flag reports whether an attribute of one byte is not 0. It returns false if it is missing.
func Flag(attrs []byte, kinds ...uint16) bool {
	value := Attribute(attrs, kinds...)
	return len(value) == 1 && value[0] != 0
}

// Text returns an attribute that is a text which may end with a NUL, or "" if it is missing.
func Text(attrs []byte, kinds ...uint16) string {
	return unix.ByteSliceToString(Attribute(attrs, kinds...))
}

// Number returns an attribute that is a number in network byte order, or 0 if it is missing.
func Number(attrs []byte, kinds ...uint16) (n uint64) {
	for _, b := range Attribute(attrs, kinds...) {
		n = n<<8 | uint64(b)
	}
	return n
}

// Attributes calls fn for each attribute in b.
func Attributes(b []byte, fn func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			return
		}
		fn(binary.NativeEndian.Uint16(b[2:])&nl.NLA_TYPE_MASK, b[unix.SizeofNlAttr:length])
		b = b[min((length+3)&^3, len(b)):]
	}
}

// Addr converts an address. It is not valid if ip is neither 4 nor 16 bytes long.
func Addr(ip []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// Prefix converts an address and a mask of the same family.
func Prefix(ip []byte, mask []byte) netip.Prefix {
	addr := Addr(ip)
	bits := 0
	for _, b := range mask {
		for ; b != 0; b <<= 1 {
			bits++
		}
	}
	if len(mask) == 16 && addr.Is4() {
		bits -= 96
	}
	return netip.PrefixFrom(addr, bits)
}

// IPNet converts a prefix.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// Sockaddr converts an address and port.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
