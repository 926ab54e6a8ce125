package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var routeKind = kind[plan.Route]{
	set: (*Host).setRoute, del: (*Host).delRoute, read: (*Host).readRoute,
	concerned: func(m *matcher, r plan.Route) bool { return len(m.routes) > 0 && m.replaced(r) },
}

// setRoute adds a route, or replaces Fairlead's route to the same destination. It
// never replaces a route of another program, but returns an error.
func (h *Host) setRoute(r plan.Route) error {
	err := h.onRoute(r, (*netlink.Handle).RouteAdd)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	own, err := h.routes(r.Netns)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(own, func(o plan.Route) bool { return o.To == r.To }) {
		return fmt.Errorf("a route to %s exists and is not Fairlead's: remove it, so that Fairlead can add its own", r.To)
	}
	return h.onRoute(r, (*netlink.Handle).RouteReplace)
}

func (h *Host) delRoute(r plan.Route) error { return h.onRoute(r, (*netlink.Handle).RouteDel) }

func (h *Host) onRoute(r plan.Route, do func(*netlink.Handle, *netlink.Route) error) error {
	handle, link, err := h.link(r.Netns, r.Link)
	if err != nil {
		return err
	}
	route := &netlink.Route{Dst: nlutil.IPNet(r.To), LinkIndex: link.Attrs().Index, Protocol: plan.RouteProtocol}
	if r.Src.IsValid() {
		route.Src = r.Src.AsSlice()
	}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	} else if r.To.Addr().Is4() {
		route.Scope = netlink.SCOPE_LINK
	}
	return do(handle, route)
}

func (h *Host) readRoute(want plan.Route) (plan.Object, error) {
	routes, err := h.seenRoutes(want.Netns)
	for _, r := range routes {
		if r == want {
			return want, nil
		}
	}
	return nil, err
}

// routes returns the routes of a namespace that have Fairlead's protocol number.
func (h *Host) routes(netns string) ([]plan.Route, error) {
	handle, err := h.at(netns)
	if err != nil {
		return nil, err
	}
	filter := &netlink.Route{Protocol: plan.RouteProtocol, Table: unix.RT_TABLE_MAIN}
	list, err := retry(func() ([]netlink.Route, error) {
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
		route := plan.Route{Netns: netns, To: toPrefix(r.Dst.IP, r.Dst.Mask), Link: link.Attrs().Name}
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
