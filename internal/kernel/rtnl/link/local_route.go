package link

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetLocalRoute adds the route beside routes that other programs or the kernel have
// for the address. Those disappear with the address of their link, and Fairlead's
// stays.
func (h *Handle) SetLocalRoute(r plan.LocalRoute) error {
	add := (*netlink.Handle).RouteAppend
	if r.Addr.Is6() { // for IPv6, appending would make a multipath route
		add = (*netlink.Handle).RouteAdd
	}
	if err := h.onLocalRoute(r, add); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	h.noteLocalRoute(r.Addr, true)
	return nil
}

// DelLocalRoute deletes the local route.
func (h *Handle) DelLocalRoute(r plan.LocalRoute) error {
	h.noteLocalRoute(r.Addr, false)
	return h.onLocalRoute(r, (*netlink.Handle).RouteDel)
}

func (h *Handle) onLocalRoute(r plan.LocalRoute, do func(*netlink.Handle, *netlink.Route) error) error {
	handle, lo, err := h.Link("", "lo")
	if err != nil {
		return err
	}
	route := &netlink.Route{Dst: nlutil.IPNet(netip.PrefixFrom(r.Addr, r.Addr.BitLen())), LinkIndex: lo.Attrs().Index,
		Protocol: plan.RouteProtocol,
		Type:     unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL}
	if r.Addr.Is4() {
		route.Scope = netlink.SCOPE_HOST
	}
	return do(handle, route)
}

// ReadLocalRoute returns the local route as the kernel has it; nil if it is missing.
func (h *Handle) ReadLocalRoute(r plan.LocalRoute) (plan.Object, error) {
	all, err := h.LocalRoutes()
	if all[r.Addr] {
		h.noteLocalRoute(r.Addr, true)
	}
	return plan.OrNil(r, all[r.Addr]), err
}

// noteLocalRoute records whether the route to an address exists.
func (h *Handle) noteLocalRoute(a netip.Addr, there bool) {
	h.localsMu.Lock()
	defer h.localsMu.Unlock()
	if there {
		nlutil.Put(&h.locals, a, true)
	} else {
		delete(h.locals, a)
	}
}

// LocalRoutesDiffer reports whether a local route that this process has set is
// missing.
func (h *Handle) LocalRoutesDiffer() (bool, error) {
	h.localsMu.Lock()
	wanted := slices.Collect(maps.Keys(h.locals))
	h.localsMu.Unlock()
	if len(wanted) == 0 {
		return false, nil
	}
	all, err := h.ListLocalRoutes()
	return slices.ContainsFunc(wanted, func(a netip.Addr) bool { return !all[a] }), err
}

// LeftoverLocalRoutes returns Fairlead's local routes that are in no plan.
func (h *Handle) LeftoverLocalRoutes(known map[string]bool) (plan.Plan, error) {
	all, err := h.LocalRoutes()
	var found plan.Plan
	for a := range all {
		if r := (plan.LocalRoute{Addr: a}); !known[r.Key()] {
			found = append(found, r)
		}
	}
	return found, err
}
