package inspect

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"fairlead/internal/cgroup"
	"fairlead/internal/kernel/ebpf"

	"github.com/vishvananda/netlink"
)

// Foreign is a program or queueing discipline that other software has attached to a
// link, and that may drop, change or redirect packets.
type Foreign struct {
	// Link is the interface. Egress means that it applies to outgoing packets.
	Link   string
	Egress bool
	// What identifies it for an administrator, e.g. "XDP program 7".
	What string
}

// Foreign returns the XDP programs, tc filters, tcx programs and lossy queueing
// disciplines in the host's namespace that are not Fairlead's. The argument lists
// the ids of Fairlead's tcx programs.
func (h *Reader) Foreign(ours []uint32) ([]Foreign, error) {
	links, err := h.rtnl.ListLinks("")
	if err != nil {
		return nil, err
	}
	var all []Foreign
	for _, l := range links {
		a := l.Attrs()
		if a.Xdp != nil && a.Xdp.Attached {
			all = append(all, Foreign{Link: a.Name, What: fmt.Sprintf("XDP program %d", a.Xdp.ProgId)})
		}
		for _, egress := range []bool{false, true} {
			found, err := h.foreignFilters(l, egress)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		all = append(all, h.foreignQdiscs(l)...)
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

func (h *Reader) foreignFilters(l netlink.Link, egress bool) ([]Foreign, error) {
	parent := uint32(netlink.HANDLE_MIN_INGRESS)
	if egress {
		parent = netlink.HANDLE_MIN_EGRESS
	}
	list, err := h.rtnl.Filters(l, parent)
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

// foreignQdiscs returns the queueing disciplines that drop packets on purpose.
func (h *Reader) foreignQdiscs(l netlink.Link) []Foreign {
	list, err := h.rtnl.Qdiscs(l)
	if err != nil {
		return nil // the link was just removed
	}
	var all []Foreign
	for _, q := range list {
		if q.Type() == "netem" {
			all = append(all, Foreign{l.Attrs().Name, true, "queueing discipline netem"})
		}
	}
	return all
}

// SocketFilters returns the programs that may drop the packets of sockets of a cgroup v2 (cgroup_skb), e.g. those of
// systemd's IPAddressDeny=: programs of the cgroup and of its parents. It returns none for the id 0, which is unknown.
func SocketFilters(id uint64) ([]string, error) {
	if id == 0 {
		return nil, nil
	}
	path, err := cgroup.Path(id)
	if errors.Is(err, cgroup.ErrNone) { // without the hierarchy, no program can be attached
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the cgroup: %w", err)
	}
	defer dir.Close()
	return ebpf.SocketFilters(dir)
}
