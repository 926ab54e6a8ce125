package link

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"fairlead/internal/escape"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The modes of macvlan and ipvlan, by name.
var (
	macvlanModes = map[string]netlink.MacvlanMode{"bridge": netlink.MACVLAN_MODE_BRIDGE,
		"private": netlink.MACVLAN_MODE_PRIVATE,
		"vepa":    netlink.MACVLAN_MODE_VEPA, "passthru": netlink.MACVLAN_MODE_PASSTHRU}
	ipvlanModes = map[string]netlink.IPVlanMode{"l2": netlink.IPVLAN_MODE_L2, "l3": netlink.IPVLAN_MODE_L3,
		"l3s": netlink.IPVLAN_MODE_L3S}
)

// SetSubLink creates the link or changes Fairlead's existing one. If a link of
// another program has the name, it returns an error and leaves that link
// unchanged.
func (h *Handle) SetSubLink(want plan.SubLink) error {
	if want.Inside != "" {
		return h.setHostInterface(want)
	}
	handle, err := h.At(want.Netns) // fails before any change if the sandbox does not exist
	if err != nil {
		return err
	}
	parent, err := h.LinkByName("", want.Parent)
	if err != nil {
		return fmt.Errorf("find parent %s: %w", want.Parent, err)
	}
	have, err := Managed(handle, want.Netns, want.Name,
		func(have netlink.Link) bool { return h.isSubLink(handle, have, parent, want) },
		func() (netlink.Link, error) { return h.addSubLink(handle, parent, want) })
	if err != nil {
		return err
	}
	if err := h.adjustSubLink(handle, have, want); err != nil {
		return err
	}
	err = untilFree(func() error { return handle.LinkSetUp(have) })
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("hardware address %s is in use on %s (%w): choose another", want.MAC, want.Parent, err)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("parent %s is down (%w): ip link set %s up", want.Parent, err, escape.Shell(want.Parent))
	}
	return err
}

// untilFree repeats an operation that the kernel refuses because another sub-link
// of the parent has the hardware or IP address. The kernel deletes the sub-link of
// a sandbox that has just ended in the background. It gives up after 5 s.
func untilFree(do func() error) error {
	const interval, timeout = time.Millisecond, 5 * time.Second
	for deadline := time.Now().Add(timeout); ; time.Sleep(interval) {
		if err := do(); !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
	}
}

// isSubLink reports whether an existing link is the wanted one: it has the same
// kind, mode and parent.
func (h *Handle) isSubLink(handle *netlink.Handle, have, parent netlink.Link, want plan.SubLink) bool {
	index, outside := parent.Attrs().Index, false
	if at := parent.Attrs(); want.Kind == plan.Macvlan && parent.Type() == string(plan.Macvlan) {
		// Instead of a macvlan, the kernel uses the parent that the macvlan itself has.
		index, outside = at.ParentIndex, at.NetNsID >= 0
	}
	if have.Type() != string(want.Kind) || have.Attrs().ParentIndex != index {
		return false
	}
	switch have := have.(type) {
	case *netlink.Macvlan:
		if have.Mode != macvlanModes[want.Mode] {
			return false
		}
	case *netlink.IPVlan:
		if have.Mode != ipvlanModes[want.Mode] {
			return false
		}
	case *netlink.Vlan:
		if have.VlanId != int(want.VLAN) {
			return false
		}
	}
	// Many namespaces have the same interface indices: the parent must be in the
	// host's namespace. -1 stands for the namespace of the link itself.
	if want.Netns == "" {
		return (have.Attrs().NetNsID != -1) == outside
	}
	id, err := handle.GetNetNsIdByFd(int(h.ns.File().Fd()))
	return err == nil && have.Attrs().NetNsID != -1 && (have.Attrs().NetNsID == id) != outside
}

// addSubLink creates the link in its namespace and marks it at once.
func (h *Handle) addSubLink(handle *netlink.Handle, parent netlink.Link, want plan.SubLink) (netlink.Link, error) {
	attrs, err := NewAttrs(want.Name, want.MTU, want.MAC)
	if err != nil {
		return nil, err
	}
	attrs.ParentIndex, attrs.Group = parent.Attrs().Index, rtnl.NewLinkGroup
	if want.Netns != "" {
		ns, err := h.ns.Open(want.Netns)
		if err != nil {
			return nil, err
		}
		defer ns.Close()
		attrs.Namespace = netlink.NsFd(ns.File().Fd())
	}
	var link netlink.Link
	switch want.Kind {
	case plan.Macvlan:
		link = &netlink.Macvlan{LinkAttrs: attrs, Mode: macvlanModes[want.Mode]}
	case plan.IPvlan:
		link = &netlink.IPVlan{LinkAttrs: attrs, Mode: ipvlanModes[want.Mode]}
	case plan.VLAN:
		link = &netlink.Vlan{LinkAttrs: attrs, VlanId: int(want.VLAN), VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	default:
		return nil, fmt.Errorf("%s is not a kind of sub-link", want.Kind)
	}
	host, err := h.At("")
	if err != nil {
		return nil, err
	}
	have, err := AddNamed(handle, want.Name, want.Alias(), want.Group, func(name string) error {
		link.Attrs().Name = name
		return host.LinkAdd(link)
	})
	if err != nil {
		return nil, refusedSubLink(want, err)
	}
	return have, nil
}

// AddNamed calls add to create a link in the namespace of the handle, marks it at
// once and puts it into the group. Older kernels (e.g. 6.1) refuse a name that a link of the host has,
// such as eth0. Then the link is created under a temporary name and renamed. A
// link with that temporary name, which a killed Fairlead has left, is deleted
// first.
func AddNamed(inside *netlink.Handle, name, alias string, group plan.LinkGroup,
	add func(name string) error) (netlink.Link, error) {
	as := name
	err := add(as)
	if _, free := inside.LinkByName(name); errors.Is(err, unix.EEXIST) && nlutil.Absent(free) {
		as = "fl~" + name[:min(len(name), unix.IFNAMSIZ-1-len("fl~"))]
		if left, err := inside.LinkByName(as); err == nil && rtnl.Ours(left) {
			if err := inside.LinkDel(left); err != nil {
				return nil, err
			}
		}
		err = add(as)
	}
	if err != nil {
		return nil, err
	}
	have, err := inside.LinkByName(as)
	if err != nil {
		return nil, err
	}
	err = mark(inside, have, alias, group)
	if err == nil && as != name {
		err = inside.LinkSetName(have, name)
	}
	if err != nil {
		return nil, errors.Join(err, inside.LinkDel(have))
	}
	have.Attrs().Alias, have.Attrs().Name = alias, name
	return have, nil
}

// refusedSubLink explains why the kernel refused to create the link. The driver
// has checked the kind of the parent, but other programs may have made the parent
// a port since then, or may have sub-links on it.
func refusedSubLink(want plan.SubLink, err error) error {
	switch {
	case errors.Is(err, unix.EEXIST) && want.Kind == plan.VLAN:
		return fmt.Errorf("%s already has a link for VLAN %d (%w): name that link as the parent, without a VLAN",
			want.Parent, want.VLAN, err)
	case errors.Is(err, unix.EEXIST):
		return Occupied(want.Netns, want.Name)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("parent %s is in use (%w): it is a port of a bridge or bond, or has sub-links of another kind than %s",
			want.Parent, err, want.Kind)
	case errors.Is(err, unix.EINVAL) && want.Kind == plan.Macvlan:
		return fmt.Errorf("parent %s does not accept a macvlan of mode %s (%w): mode passthru allows only one macvlan: "+
			"list its sub-links with `ip -d link`, or name another parent", want.Parent, want.Mode, err)
	}
	return err
}

// adjustSubLink sets the properties that can change on an existing link.
func (h *Handle) adjustSubLink(handle *netlink.Handle, have netlink.Link, want plan.SubLink) error {
	if have.Attrs().Alias != want.Alias() {
		if err := handle.LinkSetAlias(have, want.Alias()); err != nil {
			return err
		}
	}
	if err := adjustGroup(handle, have, want.Group); err != nil {
		return err
	}
	if err := AdjustEnd(handle, have, want.MTU, want.MAC); err != nil {
		return err
	}
	settings := plan.LinkSettings(want)
	if want.Quiet {
		settings = append(settings, quiet(want)...)
	}
	return h.writeSettings(settings)
}

// quiet returns the settings that plan.SubLink.Quiet stands for.
func quiet(b plan.SubLink) []plan.Sysctl {
	return []plan.Sysctl{{Name: plan.LinkSetting("ipv4", b.Name, "arp_filter"), Value: "1"},
		{Name: plan.LinkSetting("ipv4", b.Name, "arp_announce"), Value: "2"}}
}

// DelSubLink deletes the sub link.
func (h *Handle) DelSubLink(b plan.SubLink) error {
	if b.Inside != "" {
		return h.delHostInterface(b)
	}
	handle, have, err := h.Link(b.Netns, b.Name)
	if err != nil || !rtnl.Ours(have) {
		return err
	}
	return handle.LinkDel(have)
}

// ReadSubLink returns the link with the properties that the kernel has. It returns
// nil if the link is missing, not Fairlead's, on another parent, of another mode,
// or down.
func (h *Handle) ReadSubLink(want plan.SubLink) (plan.Object, error) {
	if want.Inside != "" {
		return h.readHostInterface(want)
	}
	parent, err := h.LinkByName("", want.Parent)
	if err != nil {
		return nil, err
	}
	handle, link, err := h.Link(want.Netns, want.Name)
	if err != nil {
		return nil, err
	}
	if !rtnl.IsUp(link) || !rtnl.Ours(link) || !h.isSubLink(handle, link, parent, want) {
		return nil, nil
	}
	found := want
	found.MTU = link.Attrs().MTU
	found.Owner = strings.TrimPrefix(link.Attrs().Alias, plan.Mark+":")
	if want.Group != 0 {
		found.Group = plan.LinkGroup(link.Attrs().Group)
	}
	if want.MAC != "" {
		found.MAC = link.Attrs().HardwareAddr.String()
	}
	if found.IPv6, err = h.ReadIPv6(want, want.IPv6); err == nil && want.Quiet {
		found.Quiet, err = h.isQuiet(want)
	}
	return found, err
}

func (h *Handle) isQuiet(b plan.SubLink) (bool, error) {
	for _, s := range quiet(b) {
		value, err := h.ReadSysctl(s)
		if errors.Is(err, rtnl.ErrNoSetting) {
			continue
		}
		if err != nil || value != s.Value {
			return false, err
		}
	}
	return true, nil
}
