package link

import (
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetRoute adds a route, or replaces Fairlead's route to the same destination. It
// never replaces a route of another program, but returns an error.
func (h *Handle) SetRoute(r plan.Route) error {
	err := h.onRoute(r, (*netlink.Handle).RouteAdd)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	own, err := h.Routes(r.Netns)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(own, func(o plan.Route) bool { return o.To == r.To }) {
		return fmt.Errorf("a route to %s exists and is not Fairlead's: remove it, so that Fairlead can add its own",
			r.To)
	}
	return h.onRoute(r, (*netlink.Handle).RouteReplace)
}

// DelRoute deletes the route.
func (h *Handle) DelRoute(r plan.Route) error { return h.onRoute(r, (*netlink.Handle).RouteDel) }

func (h *Handle) onRoute(r plan.Route, do func(*netlink.Handle, *netlink.Route) error) error {
	handle, link, err := h.Link(r.Netns, r.Link)
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

// ReadRoute returns the route as the kernel has it; nil if it is missing.
func (h *Handle) ReadRoute(want plan.Route) (plan.Object, error) {
	routes, err := h.SeenRoutes(want.Netns)
	if slices.Contains(routes, want) {
		return want, nil
	}
	return nil, err
}
