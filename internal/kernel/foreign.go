package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/kernel/ebpf"

	"github.com/vishvananda/netlink"
)

// Foreign is something that other programs have attached to a link and that may
// drop, change or redirect packets.
type Foreign struct {
	// Link is the interface; Egress says that it acts on what goes out there.
	Link   string
	Egress bool
	// What names it as an administrator finds it again.
	What string
}

// Foreign lists the XDP programs, tc filters, tcx programs and lossy queueing
// disciplines of the host's namespace that are not ours.
func (h *Host) Foreign(ours []uint32) ([]Foreign, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	links, err := retry(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var all []Foreign
	for _, l := range links {
		a := l.Attrs()
		if a.Xdp != nil && a.Xdp.Attached {
			all = append(all, Foreign{Link: a.Name, What: fmt.Sprintf("XDP program %d", a.Xdp.ProgId)})
		}
		for _, egress := range []bool{false, true} {
			found, err := foreignFilters(handle, l, egress)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		all = append(all, foreignQdiscs(handle, l)...)
	}
	err = h.ns.Do(func() error {
		for _, l := range links {
			for _, egress := range []bool{false, true} {
				for _, id := range ebpf.Attached(l.Attrs().Index, egress) {
					if !slices.Contains(ours, id) {
						all = append(all, Foreign{l.Attrs().Name, egress, fmt.Sprintf("tcx program %d", id)})
					}
				}
			}
		}
		return nil
	})
	return all, err
}

func foreignFilters(handle *netlink.Handle, l netlink.Link, egress bool) ([]Foreign, error) {
	parent := uint32(netlink.HANDLE_MIN_INGRESS)
	if egress {
		parent = netlink.HANDLE_MIN_EGRESS
	}
	list, err := handle.FilterList(l, parent)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, nil // the link has no such queueing discipline
	}
	var all []Foreign
	for _, f := range list {
		if b, ok := f.(*netlink.BpfFilter); ok && strings.HasPrefix(b.Name, ebpf.FilterName) {
			continue
		}
		what := fmt.Sprintf("tc filter %s, preference %d", f.Type(), f.Attrs().Priority)
		if !slices.ContainsFunc(all, func(o Foreign) bool { return o.What == what }) {
			all = append(all, Foreign{l.Attrs().Name, egress, what})
		}
	}
	return all, err
}

// foreignQdiscs are those that lose packets on purpose.
func foreignQdiscs(handle *netlink.Handle, l netlink.Link) []Foreign {
	list, err := retry(func() ([]netlink.Qdisc, error) { return handle.QdiscList(l) })
	if err != nil {
		return nil // the link has just gone
	}
	var all []Foreign
	for _, q := range list {
		if q.Type() == "netem" {
			all = append(all, Foreign{l.Attrs().Name, true, "queueing discipline netem"})
		}
	}
	return all
}
