package rtnl

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RouteSelectors are the fields of a packet, besides its addresses and link, that
// the policy routing rules of a namespace match.
type RouteSelectors struct {
	// Mark are the bits of the packet's mark that some rule compares.
	Mark uint32
	// Others name the rules that match other fields, such as a port. RouteTo does
	// not support these.
	Others []string
}

// RouteSelectors reads the policy routing rules of the host's namespace.
func (h *Reader) RouteSelectors() (RouteSelectors, error) {
	var found RouteSelectors
	list, err := dump(h, "", "policy routing rules",
		func(handle *netlink.Handle) ([]netlink.Rule, error) { return handle.RuleList(unix.AF_UNSPEC) })
	if err != nil {
		return found, err
	}
	for _, r := range list {
		if r.Mark != 0 || r.Mask != nil {
			mask := ^uint32(0)
			if r.Mask != nil {
				mask = *r.Mask
			}
			found.Mark |= mask
		}
		if r.Dport != nil || r.Sport != nil || r.IPProto != 0 || r.UIDRange != nil || r.Tos != 0 || r.OifName != "" {
			found.Others = append(found.Others, fmt.Sprintf("rule %d", r.Priority))
		}
	}
	return found, nil
}
