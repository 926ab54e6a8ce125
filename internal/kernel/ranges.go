package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connected returns the subnets of the addresses on the host's links, without
// Fairlead's own links and loopback.
func (h *Host) Connected() ([]netip.Prefix, error) {
	aside, err := h.aside()
	if err != nil {
		return nil, err
	}
	defer aside.Release()
	_, links, err := aside.dump("")
	if err != nil {
		return nil, err
	}
	var all []netip.Prefix
	for _, l := range links {
		if ours(l) || l.Attrs().RawFlags&unix.IFF_LOOPBACK != 0 {
			continue
		}
		for _, p := range l.addresses {
			if !p.Addr().IsLinkLocalUnicast() {
				all = append(all, p.Masked())
			}
		}
	}
	return all, nil
}

// CanBind reports whether a program of the host can bind the address: it is one
// of the host's, or the host binds any (net.ipv4.ip_nonlocal_bind).
func (h *Host) CanBind(a netip.Addr) (bool, error) {
	var at unix.Sockaddr = &unix.SockaddrInet6{Addr: a.As16()}
	domain := unix.AF_INET6
	if a.Is4() {
		at, domain = &unix.SockaddrInet4{Addr: a.As4()}, unix.AF_INET
	}
	err := h.ns.Do(func() error {
		fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Bind(fd, at)
	})
	switch {
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return false, nil
	case errors.Is(err, unix.EINVAL) && a.IsLinkLocalUnicast(): // it has no link here
		return true, nil
	}
	return err == nil, err
}

// Ranges returns the address ranges to which the host has routes of its own,
// default routes left out. Nobody else should get them.
func (h *Host) Ranges() ([]netip.Prefix, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	var all []netip.Prefix
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := retry(func() ([]netlink.Route, error) { return handle.RouteList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if r.Dst == nil {
				continue
			}
			addr, ok := netip.AddrFromSlice(r.Dst.IP)
			bits, _ := r.Dst.Mask.Size()
			if ok && bits > 0 && !addr.IsLinkLocalUnicast() {
				all = append(all, netip.PrefixFrom(addr.Unmap(), bits))
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all), nil
}
