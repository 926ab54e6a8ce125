package rtnl

import (
	"github.com/vishvananda/netlink"
)

// Multipath returns the links of the host that multipath routes have, by index,
// each with the number of its set: links that share a route are in one set, and
// the lowest index in a set is its number.
func (h *Reader) Multipath() (map[int]uint32, error) {
	routes, err := h.listRoutes("", &netlink.Route{}, netlink.RT_FILTER_TABLE) // of all tables
	if err != nil {
		return nil, err
	}
	return multipathSets(routes), nil
}

// multipathSets returns the sets of the links that the routes have.
func multipathSets(routes []netlink.Route) map[int]uint32 {
	sets := map[int]uint32{}
	for _, r := range routes {
		if len(r.MultiPath) < 2 {
			continue
		}
		joined, number := map[uint32]bool{}, uint32(r.MultiPath[0].LinkIndex)
		for _, n := range r.MultiPath {
			number = min(number, uint32(n.LinkIndex))
			if set := sets[n.LinkIndex]; set != 0 {
				joined[set], number = true, min(number, set)
			}
		}
		for index, set := range sets {
			if joined[set] {
				sets[index] = number
			}
		}
		for _, n := range r.MultiPath {
			sets[n.LinkIndex] = number
		}
	}
	return sets
}
