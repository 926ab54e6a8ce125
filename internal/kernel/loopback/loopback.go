// Package loopback adds addresses to a host's loopback link for a limited time. The kernel removes them if
// no process sets their time again, so nothing stays behind when this one is killed.
package loopback

import (
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// index is that of the loopback link, which each network namespace has as its first.
const index = 1

// Handle adds addresses. Its methods may not be called concurrently.
type Handle struct{ rtnl *netlink.Handle }

// New returns a Handle for a network namespace.
func New(ns *netns.Namespace) (*Handle, error) {
	rtnl, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &Handle{rtnl}, nil
}

// Close closes the handle. The addresses stay for their lifetime.
func (h *Handle) Close() { h.rtnl.Close() }

// Keep adds an address, or sets its lifetime again. It is in whole seconds.
func (h *Handle) Keep(a netip.Addr, life time.Duration) error {
	if err := nlutil.KeepLimited(h.rtnl, a, index, life); err != nil {
		return fmt.Errorf("add address %s to the loopback link: %w", a, err)
	}
	return nil
}

// Drop removes an address. It does nothing if the link does not have it.
func (h *Handle) Drop(a netip.Addr) error {
	if err := nlutil.DropLimited(h.rtnl, a, index); err != nil {
		return fmt.Errorf("remove address %s from the loopback link: %w", a, err)
	}
	return nil
}

// Kept returns the addresses that Keep has added.
func (h *Handle) Kept() (all []netip.Addr, err error) {
	found, err := h.list()
	for _, f := range found {
		if p := nlutil.Prefix(f.IP, f.Mask); f.LinkIndex == index && nlutil.IsLimited(p, f.Flags) {
			all = append(all, p.Addr())
		}
	}
	return all, err
}

// Near returns the link on whose subnet an address is, or "".
func (h *Handle) Near(a netip.Addr) (string, error) {
	found, err := h.list()
	if err != nil {
		return "", err
	}
	for _, f := range found {
		if p := nlutil.Prefix(f.IP, f.Mask); f.LinkIndex != index && p.Masked().Contains(a) {
			return h.name(f.LinkIndex), nil
		}
	}
	return "", nil
}

func (h *Handle) list() ([]netlink.Addr, error) {
	found, err := nlutil.Retry(func() ([]netlink.Addr, error) { return h.rtnl.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	return found, nil
}

// name returns the name of a link, or its index if it has gone.
func (h *Handle) name(index int) string {
	l, err := h.rtnl.LinkByIndex(index)
	if err != nil {
		return fmt.Sprint(index)
	}
	return l.Attrs().Name
}
