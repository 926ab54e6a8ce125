package kernel

import (
	"fmt"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// shaperHandle is plan.ShaperHandle as the kernel has it.
const shaperHandle = 0xfa1e << 16

// setShaper puts a token bucket at the root of a link, or changes ours. A
// foreign one is an error, never a victim; what the kernel puts there by
// itself has no handle.
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
		return fmt.Errorf("link %s has a queueing discipline (%s) already: remove it, or leave the limit out", s.Link, root.Type())
	}
	bytes := s.Rate / 8
	return handle.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: shaperHandle, Parent: netlink.HANDLE_ROOT},
		Rate:       bytes,
		Buffer:     netlink.Xmittime(bytes, uint32(s.Burst())),
		Limit:      uint32(bytes*plan.ShaperLatency/1000 + s.Burst()),
	})
}

// rootQdisc returns the queueing discipline at the root of the link, nil where
// the kernel's own is.
func rootQdisc(handle *netlink.Handle, link netlink.Link) (netlink.Qdisc, error) {
	list, err := retry(func() ([]netlink.Qdisc, error) { return handle.QdiscList(link) })
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
