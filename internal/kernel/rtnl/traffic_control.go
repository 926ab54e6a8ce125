package rtnl

import (
	"github.com/vishvananda/netlink"
)

// Filters returns the tc filters of the host's link below the parent, as
// netlink.HANDLE_MIN_INGRESS.
func (h *Reader) Filters(l netlink.Link, parent uint32) ([]netlink.Filter, error) {
	return dump(h, "", "filters",
		func(handle *netlink.Handle) ([]netlink.Filter, error) { return handle.FilterList(l, parent) })
}

// Qdiscs returns the queueing disciplines of the host's link.
func (h *Reader) Qdiscs(l netlink.Link) ([]netlink.Qdisc, error) {
	return dump(h, "", "queueing disciplines",
		func(handle *netlink.Handle) ([]netlink.Qdisc, error) { return handle.QdiscList(l) })
}
