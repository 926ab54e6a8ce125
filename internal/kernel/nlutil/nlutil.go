// Package nlutil has the helpers that the users of netlink share.
package nlutil

import (
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

// Attribute returns the value of a netlink attribute, or nil if it is missing.
func Attribute(attrs []byte, kind uint16) []byte {
	list, err := nl.ParseRouteAttr(attrs)
	for _, a := range list {
		if err == nil && a.Attr.Type&nl.NLA_TYPE_MASK == kind {
			return a.Value
		}
	}
	return nil
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
