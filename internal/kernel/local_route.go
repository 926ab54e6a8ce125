package kernel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var localRouteKind = kind[plan.LocalRoute]{
	set: (*Host).setLocalRoute, del: (*Host).delLocalRoute, read: (*Host).readLocalRoute, leftovers: (*Host).leftoverLocalRoutes,
	concerned: func(m *matcher, _ plan.LocalRoute) bool { return m.ipvs },
}

// setLocalRoute adds the route beside routes that other programs or the kernel have
// for the address. Those disappear with the address of their link, and Fairlead's
// stays.
func (h *Host) setLocalRoute(r plan.LocalRoute) error {
	add := (*netlink.Handle).RouteAppend
	if r.Addr.Is6() { // for IPv6, appending would make a multipath route
		add = (*netlink.Handle).RouteAdd
	}
	if err := h.onLocalRoute(r, add); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	h.balancer.noteRoute(r.Addr, true)
	return nil
}

func (h *Host) delLocalRoute(r plan.LocalRoute) error {
	h.balancer.noteRoute(r.Addr, false)
	return h.onLocalRoute(r, (*netlink.Handle).RouteDel)
}

func (h *Host) onLocalRoute(r plan.LocalRoute, do func(*netlink.Handle, *netlink.Route) error) error {
	handle, lo, err := h.link("", "lo")
	if err != nil {
		return err
	}
	route := &netlink.Route{Dst: nlutil.IPNet(netip.PrefixFrom(r.Addr, r.Addr.BitLen())), LinkIndex: lo.Attrs().Index, Protocol: plan.RouteProtocol,
		Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL}
	if r.Addr.Is4() {
		route.Scope = netlink.SCOPE_HOST
	}
	return do(handle, route)
}

// localRoutes returns the addresses of Fairlead's local routes on the host. It
// caches them.
func (h *Host) localRoutes() (map[netip.Addr]bool, error) {
	h.mu.Lock()
	all := h.seen.locals
	h.mu.Unlock()
	if all != nil {
		return all, nil
	}
	all, err := h.listLocalRoutes()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen.locals = all
	return all, err
}

func (h *Host) listLocalRoutes() (map[netip.Addr]bool, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	filter := &netlink.Route{Protocol: plan.RouteProtocol, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	list, err := nlutil.Retry(func() ([]netlink.Route, error) {
		return handle.RouteListFiltered(unix.AF_UNSPEC, filter, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
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

func (h *Host) readLocalRoute(r plan.LocalRoute) (plan.Object, error) {
	all, err := h.localRoutes()
	if all[r.Addr] {
		h.balancer.noteRoute(r.Addr, true)
	}
	return orNil(r, all[r.Addr]), err
}

// noteRoute records whether the route to an address exists.
func (b *balancer) noteRoute(a netip.Addr, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if there {
		put(&b.locals, a, true)
	} else {
		delete(b.locals, a)
	}
}

// localRoutesDiffer reports whether a local route that this process has set is
// missing.
func (h *Host) localRoutesDiffer() (bool, error) {
	h.balancer.mu.Lock()
	wanted := slices.Collect(maps.Keys(h.balancer.locals))
	h.balancer.mu.Unlock()
	if len(wanted) == 0 {
		return false, nil
	}
	all, err := h.listLocalRoutes()
	return slices.ContainsFunc(wanted, func(a netip.Addr) bool { return !all[a] }), err
}

// leftoverLocalRoutes returns Fairlead's local routes that are in no plan.
func (h *Host) leftoverLocalRoutes(known map[string]bool) (plan.Plan, error) {
	all, err := h.localRoutes()
	var found plan.Plan
	for a := range all {
		if r := (plan.LocalRoute{Addr: a}); !known[r.Key()] {
			found = append(found, r)
		}
	}
	return found, err
}
