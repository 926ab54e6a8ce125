package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

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
