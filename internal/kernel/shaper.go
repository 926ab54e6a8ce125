package kernel

import (
	"fmt"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// shaperHandle is plan.ShaperHandle as a number.
const shaperHandle = 0xfa1e << 16

var shaperKind = kind[plan.Shaper]{
	set: (*Host).setShaper, del: (*Host).delShaper, read: (*Host).readShaper,
	concerned: func(m *matcher, s plan.Shaper) bool { return len(m.qdiscs) > 0 && m.unshaped(s) },
}

// setShaper sets a token bucket as the root queueing discipline of a link, or
// changes Fairlead's. It returns an error if the link has one of another program.
// The kernel's default one has no handle, and is replaced.
func (h *Host) setShaper(s plan.Shaper) error {
	handle, link, err := h.link(s.Netns, s.Link)
	if err != nil {
		return err
	}
	root, err := rootQdisc(handle, link)
	if err != nil {
		return err
	}
	if root != nil && root.Attrs().Handle != 0 && root.Attrs().Handle != shaperHandle {
		return fmt.Errorf("link %s already has a queueing discipline (%s): remove it, or do not set a limit", s.Link, root.Type())
	}
	bytes := s.Rate / 8
	return handle.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: shaperHandle, Parent: netlink.HANDLE_ROOT},
		Rate:       bytes,
		Buffer:     netlink.Xmittime(bytes, uint32(s.Burst())),
		Limit:      uint32(bytes*plan.ShaperLatency/1000 + s.Burst()),
	})
}

// rootQdisc returns the queueing discipline at the root of the link; nil if there
// is none.
func rootQdisc(handle *netlink.Handle, link netlink.Link) (netlink.Qdisc, error) {
	list, err := nlutil.Retry(func() ([]netlink.Qdisc, error) { return handle.QdiscList(link) })
	for _, q := range list {
		if q.Attrs().Parent == netlink.HANDLE_ROOT {
			return q, err
		}
	}
	return nil, err
}

func (h *Host) delShaper(s plan.Shaper) error {
	handle, link, err := h.link(s.Netns, s.Link)
	if err != nil {
		return err
	}
	root, err := rootQdisc(handle, link)
	if err != nil || root == nil || root.Attrs().Handle != shaperHandle {
		return err
	}
	return handle.QdiscDel(root)
}

func (h *Host) readShaper(want plan.Shaper) (plan.Object, error) {
	handle, link, err := h.link(want.Netns, want.Link)
	if err != nil {
		return nil, err
	}
	root, err := rootQdisc(handle, link)
	tbf, is := root.(*netlink.Tbf)
	if err != nil || !is || tbf.Attrs().Handle != shaperHandle {
		return nil, err
	}
	if tbf.Rate != want.Rate/8 {
		want.Rate = tbf.Rate * 8
	}
	return want, nil
}
