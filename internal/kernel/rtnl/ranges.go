package rtnl

import (
	"errors"
	"net/netip"
	"slices"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Reached is a subnet that the host reaches without Fairlead.
type Reached struct {
	Prefix netip.Prefix
	// Link is the link of the subnet or of the route to it; empty for a route with
	// several next hops.
	Link string
	// Gateway is the zero value for a subnet on the link.
	Gateway netip.Addr
}

// String returns the subnet as "192.0.2.0/24 on eth0" or "10.0.0.0/8 via 192.0.2.254".
func (r Reached) String() string {
	switch {
	case r.Gateway.IsValid():
		return r.Prefix.String() + " via " + r.Gateway.String()
	case r.Link != "":
		return r.Prefix.String() + " on " + r.Link
	}
	return r.Prefix.String() + " via several next hops"
}

// Reached returns the subnets of the host's links and of the routes in its main
// table. It leaves out Fairlead's links and routes, loopback, and default routes,
// also the two halves that VPNs split a default route into.
func (h *Reader) Reached() ([]Reached, error) {
	reader, err := h.Copy()
	if err != nil {
		return nil, err
	}
	defer reader.Release()
	links, err := reader.Dump("")
	if err != nil {
		return nil, err
	}
	var all []Reached
	byIndex := map[int]Dumped{}
	for _, l := range links {
		byIndex[l.Attrs().Index] = l
		for _, p := range l.Addresses {
			if isForeign(l) && !p.Addr().IsLinkLocalUnicast() {
				all = append(all, Reached{Prefix: p.Masked(), Link: l.Attrs().Name})
			}
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := familyRoutes(reader, family)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			l, known := byIndex[r.LinkIndex]
			to, ok := routeTo(r)
			if !ok || to.Bits() <= 1 || to.Addr().IsLinkLocalUnicast() || r.Type != unix.RTN_UNICAST ||
				r.Protocol == plan.RouteProtocol || known && !isForeign(l) {
				continue
			}
			reached := Reached{Prefix: to}
			if known {
				reached.Link = l.Attrs().Name
			}
			if via, ok := netip.AddrFromSlice(r.Gw); ok {
				reached.Gateway = via.Unmap()
			}
			all = append(all, reached)
		}
	}
	return all, nil
}

// isForeign reports whether the link is neither Fairlead's nor loopback.
func isForeign(l Dumped) bool { return !Ours(l) && l.Attrs().RawFlags&unix.IFF_LOOPBACK == 0 }

// routeTo returns the destination of a route; false for a default route.
func routeTo(r netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(r.Dst.IP)
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok && bits > 0
}

// CanBind reports whether a program of the host can bind the address: the host has
// the address, or it allows binding any (net.ipv4.ip_nonlocal_bind).
func (h *Reader) CanBind(a netip.Addr) (bool, error) {
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
	case errors.Is(err, unix.EINVAL) && a.IsLinkLocalUnicast(): // the address lacks a zone
		return true, nil
	}
	return err == nil, err
}

// Ranges returns the address ranges that the host has routes to, without default
// routes and link-local ranges. Networks must not use these ranges.
func (h *Reader) Ranges() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := familyRoutes(h, family)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			if to, ok := routeTo(r); ok && !to.Addr().IsLinkLocalUnicast() {
				all = append(all, to)
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all), nil
}

// familyRoutes returns the routes of a family in the host's main table.
func familyRoutes(h *Reader, family int) ([]netlink.Route, error) {
	return dump(h, "", "routes",
		func(handle *netlink.Handle) ([]netlink.Route, error) { return handle.RouteList(nil, family) })
}
