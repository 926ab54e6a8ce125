package rtnl

import (
	"net/netip"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LocalRoutes returns the addresses of Fairlead's local routes on the host. It
// caches them.
func (h *Reader) LocalRoutes() (map[netip.Addr]bool, error) {
	return h.seen.locals.Of(host{}, h.ListLocalRoutes)
}

// ListLocalRoutes lists the addresses of Fairlead's local routes on the host.
func (h *Reader) ListLocalRoutes() (map[netip.Addr]bool, error) {
	filter := &netlink.Route{Protocol: plan.RouteProtocol, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	list, err := dump(h, "", "local routes", func(handle *netlink.Handle) ([]netlink.Route, error) {
		return handle.RouteListFiltered(unix.AF_UNSPEC, filter,
			netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	if err != nil {
		return nil, err
	}
	all := map[netip.Addr]bool{}
	for _, r := range list {
		all[nlutil.Addr(r.Dst.IP)] = true
	}
	return all, nil
}

// Routes returns the routes of a namespace that have Fairlead's protocol number.
func (h *Reader) Routes(netns string) ([]plan.Route, error) {
	handle, err := h.handles.At(netns)
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

// MainRoutes returns all routes in the main table of the namespace at path; "" means
// the host's.
func (h *Reader) MainRoutes(path string) ([]netlink.Route, error) {
	return h.listRoutes(path, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
}

// DefaultRoutes returns the host's default routes in the main table.
func (h *Reader) DefaultRoutes() ([]netlink.Route, error) {
	return h.listRoutes("", &netlink.Route{}, netlink.RT_FILTER_DST)
}

// listRoutes returns the routes of both families that match the fields of the filter
// that the mask selects.
func (h *Reader) listRoutes(path string, filter *netlink.Route, mask uint64) ([]netlink.Route, error) {
	return dump(h, path, "routes", func(handle *netlink.Handle) ([]netlink.Route, error) {
		return handle.RouteListFiltered(unix.AF_UNSPEC, filter, mask)
	})
}
