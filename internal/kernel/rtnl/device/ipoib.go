package device

import (
	"errors"
	"fmt"
	"strings"

	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/link"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// SetIPoIB creates the child in its sandbox, or changes an existing child of
// Fairlead's to match.
func (h *Handle) SetIPoIB(want plan.IPoIB) error {
	inside, err := h.At(want.Netns)
	if err != nil {
		return err
	}
	have, err := link.Managed(inside, want.Netns, want.Name,
		func(have netlink.Link) bool { return h.sameChild(have, want) },
		func() (netlink.Link, error) { return h.addIPoIB(inside, want) })
	if err != nil {
		return err
	}
	if want.MTU != 0 {
		if err := link.AdjustEnd(inside, have, want.MTU, ""); err != nil {
			return err
		}
	}
	if err := h.links.SetLinkSettings(want); err != nil {
		return err
	}
	return inside.LinkSetUp(have)
}

// sameChild reports whether an existing link is the wanted child.
func (h *Handle) sameChild(have netlink.Link, want plan.IPoIB) bool {
	child, ok := have.(*netlink.IPoIB)
	parent, err := h.LinkByName("", want.Parent)
	return ok && err == nil && child.Pkey == want.PKey && have.Attrs().ParentIndex == parent.Attrs().Index
}

// addIPoIB creates the child and marks it as Fairlead's.
func (h *Handle) addIPoIB(inside *netlink.Handle, want plan.IPoIB) (netlink.Link, error) {
	parent, err := h.LinkByName("", want.Parent)
	if err != nil {
		return nil, fmt.Errorf("find parent %s: %w", want.Parent, err)
	}
	target, err := h.ns.Open(want.Netns)
	if err != nil {
		return nil, err
	}
	defer target.Close()
	link, err := link.AddNamed(inside, want.Name, want.Alias(), 0, func(name string) error {
		named := want
		named.Name = name
		return h.ns.Do(func() error {
			_, err := ipoibRequest(parent.Attrs().Index, int(target.File().Fd()), named).Execute(unix.NETLINK_ROUTE, 0)
			return err
		})
	})
	if err != nil {
		return nil, ipoibError(err, parent.Attrs().EncapType, want)
	}
	return link, nil
}

// iflaIPoIBPKey is IFLA_IPOIB_PKEY of linux/if_link.h.
const iflaIPoIBPKey = 1

// ipoibRequest returns the request of `ip link add link PARENT name NAME netns …
// type ipoib pkey PKEY`. It sets neither mode nor multicast, so the kernel's
// defaults apply.
func ipoibRequest(parent, netns int, want plan.IPoIB) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(netns))))
	if want.MTU != 0 {
		req.AddData(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(uint32(want.MTU))))
	}
	req.AddData(nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(uint32(parent))))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(want.Name)))
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("ipoib"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(iflaIPoIBPKey, nl.Uint16Attr(want.PKey))
	req.AddData(info)
	return req
}

// ipoibError adds the meaning of the kernel's error (drivers/infiniband/ulp/ipoib).
func ipoibError(err error, encap string, want plan.IPoIB) error {
	why := ""
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		why = "the kernel has no IPoIB: modprobe ib_ipoib"
	case errors.Is(err, unix.ENODEV) || encap != "infiniband":
		why = fmt.Sprintf("%s is not an InfiniBand link (%s): omit the pkey to attach the device itself",
			want.Parent, encap)
	case errors.Is(err, unix.ENOTUNIQ):
		why = fmt.Sprintf("%s already has a child with pkey %#04x: "+
			"remove it, or attach it by its name and without a pkey", want.Parent, want.PKey)
	case errors.Is(err, unix.EEXIST):
		why = link.Occupied(want.Netns, want.Name).Error()
	case errors.Is(err, unix.EINVAL) && want.MTU != 0:
		why = fmt.Sprintf("the kernel refuses pkey %#04x or mtu %d: the MTU must be no more than its parent's MTU, "+
			"and %s must not be a child itself", want.PKey, want.MTU, want.Parent)
	case errors.Is(err, unix.EINVAL):
		why = fmt.Sprintf("the kernel refuses pkey %#04x: %s must not be a child itself", want.PKey, want.Parent)
	}
	if why == "" {
		return fmt.Errorf("create a child of %s: %w", want.Parent, err)
	}
	return fmt.Errorf("%s: %w", why, err)
}

// DelIPoIB deletes the ipo ib.
func (h *Handle) DelIPoIB(l plan.IPoIB) error {
	return h.links.DelLink(plan.Link{Netns: l.Netns, Name: l.Name, Kind: "ipoib"})
}

// ReadIPoIB returns the child's state, or nil if it is missing, not Fairlead's or
// down.
func (h *Handle) ReadIPoIB(want plan.IPoIB) (plan.Object, error) {
	link, err := h.LinkByName(want.Netns, want.Name)
	if err != nil {
		return nil, err
	}
	if !rtnl.IsUp(link) || !rtnl.Ours(link) || !h.sameChild(link, want) {
		return nil, nil
	}
	found := want
	found.Owner = strings.TrimPrefix(link.Attrs().Alias, plan.Mark+":")
	if want.MTU != 0 {
		found.MTU = link.Attrs().MTU
	}
	found.IPv6, err = h.ReadIPv6(want, want.IPv6)
	return found, err
}
