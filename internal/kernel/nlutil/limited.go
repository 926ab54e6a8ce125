package nlutil

import (
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A limited address has no subnet and a limited lifetime. The kernel removes it if no process keeps it, so
// nothing stays behind when this one is killed.

// KeepLimited adds a limited address to the link with the index, or sets its lifetime again. It is in whole
// seconds.
func KeepLimited(h *netlink.Handle, a netip.Addr, index int, life time.Duration) error {
	addr := limited(a)
	// An address without a preferred lifetime is no source of the host's own connections.
	addr.ValidLft = int((life + time.Second - 1) / time.Second)
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return h.AddrReplace(byIndex(index), addr)
}

// DropLimited removes a limited address. It does nothing if the link does not have it.
func DropLimited(h *netlink.Handle, a netip.Addr, index int) error {
	if err := h.AddrDel(byIndex(index), limited(a)); err != nil && !Absent(err) {
		return err
	}
	return nil
}

// IsLimited reports whether an address with these flags is one that KeepLimited has added: without a subnet,
// with a limited lifetime, and without a preferred one.
func IsLimited(p netip.Prefix, flags int) bool {
	return p.IsSingleIP() && flags&unix.IFA_F_PERMANENT == 0 && flags&unix.IFA_F_DEPRECATED != 0
}

func byIndex(index int) netlink.Link {
	return &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

func limited(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: IPNet(netip.PrefixFrom(a, a.BitLen()))}
}
