package rtnl

import (
	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
)

// Filters returns the tc filters of the host's link below the parent, as
// netlink.HANDLE_MIN_INGRESS.
func (h *Reader) Filters(l netlink.Link, parent uint32) ([]netlink.Filter, error) {
	handle, err := h.handles.At("")
	if err != nil {
		return nil, err
	}
	return nlutil.Retry(func() ([]netlink.Filter, error) { return handle.FilterList(l, parent) })
}

// Qdiscs returns the queueing disciplines of the host's link.
func (h *Reader) Qdiscs(l netlink.Link) ([]netlink.Qdisc, error) {
	handle, err := h.handles.At("")
	if err != nil {
		return nil, err
	}
	return nlutil.Retry(func() ([]netlink.Qdisc, error) { return handle.QdiscList(l) })
}
