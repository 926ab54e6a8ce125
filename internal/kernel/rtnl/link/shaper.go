package link

import (
	"fmt"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
)

// SetShaper sets a token bucket as the root queueing discipline of a link, or
// changes Fairlead's. It returns an error if the link has one of another program.
// The kernel's default one has no handle, and is replaced.
func (h *Handle) SetShaper(s plan.Shaper) error {
	handle, link, err := h.Link(s.Netns, s.Link)
	if err != nil {
		return err
	}
	root, err := rootQdisc(handle, link)
	if err != nil {
		return err
	}
	if root != nil && root.Attrs().Handle != 0 && root.Attrs().Handle != rtnl.ShaperHandle {
		return fmt.Errorf("link %s already has a queueing discipline (%s): remove it, or do not set a limit", s.Link,
			root.Type())
	}
	bytes := s.Rate / 8
	return handle.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: rtnl.ShaperHandle,
			Parent: netlink.HANDLE_ROOT},
		Rate:   bytes,
		Buffer: netlink.Xmittime(bytes, uint32(s.Burst())),
		Limit:  uint32(bytes*plan.ShaperLatency/1000 + s.Burst()),
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

// DelShaper deletes the shaper.
func (h *Handle) DelShaper(s plan.Shaper) error {
	handle, link, err := h.Link(s.Netns, s.Link)
	if err != nil {
		return err
	}
	root, err := rootQdisc(handle, link)
	if err != nil || root == nil || root.Attrs().Handle != rtnl.ShaperHandle {
		return err
	}
	return handle.QdiscDel(root)
}

// ReadShaper returns the shaper as the kernel has it; nil if it is missing.
func (h *Handle) ReadShaper(want plan.Shaper) (plan.Object, error) {
	handle, link, err := h.Link(want.Netns, want.Link)
	if err != nil {
		return nil, err
	}
	root, err := rootQdisc(handle, link)
	tbf, is := root.(*netlink.Tbf)
	if err != nil || !is || tbf.Attrs().Handle != rtnl.ShaperHandle {
		return nil, err
	}
	if tbf.Rate != want.Rate/8 {
		want.Rate = tbf.Rate * 8
	}
	return want, nil
}
