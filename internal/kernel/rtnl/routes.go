package rtnl

import (
	"fmt"
	"net/netip"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LocalRoutes returns the addresses of Fairlead's local routes on the host. It
// caches them.
func (h *Reader) LocalRoutes() (map[netip.Addr]bool, error) {
	h.mu.Lock()
	all := h.seen.locals
	h.mu.Unlock()
	if all != nil {
		return all, nil
	}
	all, err := h.ListLocalRoutes()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen.locals = all
	return all, err
}

// ListLocalRoutes lists the addresses of Fairlead's local routes on the host.
func (h *Reader) ListLocalRoutes() (map[netip.Addr]bool, error) {
	handle, err := h.At("")
	if err != nil {
		return nil, err
	}
	filter := &netlink.Route{Protocol: plan.RouteProtocol, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	list, err := nlutil.Retry(func() ([]netlink.Route, error) {
		return handle.RouteListFiltered(unix.AF_UNSPEC, filter,
			netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	if err != nil {
		return nil, fmt.Errorf("list local routes: %w", err)
	}
	all := map[netip.Addr]bool{}
	for _, r := range list {
		all[nlutil.Addr(r.Dst.IP)] = true
	}
	return all, nil
}

// Routes returns the routes of a namespace that have Fairlead's protocol number.
func (h *Reader) Routes(netns string) ([]plan.Route, error) {
	handle, err := h.At(netns)
	if err != nil {
		return nil, err
	}
	filter := &netlink.Route{Protocol: plan.RouteProtocol, Table: unix.RT_TABLE_MAIN}
	list, err := nlutil.Retry(func() ([]netlink.Route, error) {
		return handle.RouteListFiltered(unix.AF_UNSPEC, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, err
	}
	var routes []plan.Route
	for _, r := range list {
		link, err := handle.LinkByIndex(r.LinkIndex)
		if err != nil {
			continue
		}
		route := plan.Route{Netns: netns, To: nlutil.Prefix(r.Dst.IP, r.Dst.Mask), Link: link.Attrs().Name}
		if via, ok := netip.AddrFromSlice(r.Gw); ok {
			route.Via = via.Unmap()
		}
		if src, ok := netip.AddrFromSlice(r.Src); ok {
			route.Src = src.Unmap()
		}
		routes = append(routes, route)
	}
	return routes, nil
}
