package kernel

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"fairlead/internal/escape"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The modes of macvlan and ipvlan by their names.
var (
	macvlanModes = map[string]netlink.MacvlanMode{"bridge": netlink.MACVLAN_MODE_BRIDGE, "private": netlink.MACVLAN_MODE_PRIVATE,
		"vepa": netlink.MACVLAN_MODE_VEPA, "passthru": netlink.MACVLAN_MODE_PASSTHRU}
	ipvlanModes = map[string]netlink.IPVlanMode{"l2": netlink.IPVLAN_MODE_L2, "l3": netlink.IPVLAN_MODE_L3, "l3s": netlink.IPVLAN_MODE_L3S}
)

// setSubLink makes the link or brings ours to the wanted state. A foreign link
// of that name is an error, never a victim.
func (h *Host) setSubLink(want plan.SubLink) error {
	if want.Inside != "" {
		return h.setHostInterface(want)
	}
	handle, err := h.at(want.Netns) // before anything goes: is there a sandbox at all?
	if err != nil {
		return err
	}
	_, parent, err := h.link("", want.Parent)
	if err != nil {
		return fmt.Errorf("find parent %s: %w", want.Parent, err)
	}
	have, err := managedLink(handle, want.Netns, want.Name,
		func(have netlink.Link) bool { return h.branches(handle, have, parent, want) },
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

// untilFree repeats what the kernel refuses because another branch of the
// parent has the hardware or IP address: that of a sandbox which has died a
// moment ago goes in the background.
func untilFree(do func() error) error {
	const often, patience = time.Millisecond, 5 * time.Second
	for deadline := time.Now().Add(patience); ; time.Sleep(often) {
		if err := do(); !errors.Is(err, unix.EADDRINUSE) || time.Now().After(deadline) {
			return err
		}
	}
}

// branches reports whether an existing link is the wanted one: of the same
// kind and mode, from the same parent.
func (h *Host) branches(handle *netlink.Handle, have, parent netlink.Link, want plan.SubLink) bool {
	if have.Type() != string(want.Kind) || have.Attrs().ParentIndex != parent.Attrs().Index {
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
	// Interface indices are alike in many namespaces: the parent's must be the
	// host's own. -1 is the namespace of the link itself.
	if want.Netns == "" {
		return have.Attrs().NetNsID == -1
	}
	id, err := handle.GetNetNsIdByFd(int(h.ns.File().Fd()))
	return err == nil && have.Attrs().NetNsID == id
}

// addSubLink makes the link where it belongs and marks it at once.
func (h *Host) addSubLink(handle *netlink.Handle, parent netlink.Link, want plan.SubLink) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.ParentIndex, attrs.Group = want.Name, want.MTU, parent.Attrs().Index, newLinkGroup
	var err error
	if attrs.HardwareAddr, err = parseMAC(want.MAC); err != nil {
		return nil, err
	}
	if want.Netns != "" {
		ns, err := h.open(want.Netns)
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
		return nil, fmt.Errorf("%s is no kind of branch", want.Kind)
	}
	host, err := h.at("")
	if err != nil {
		return nil, err
	}
	have, err := addNamed(handle, want.Name, want.Alias(), func(name string) error {
		link.Attrs().Name = name
		return host.LinkAdd(link)
	})
	if err != nil {
		return nil, refusedSubLink(want, err)
	}
	return have, nil
}

// addNamed has a link made in the namespace of the handle, and marks it at
// once. Older kernels (6.1 is one) do not make it under a name that a link of
// the host has, as eth0 mostly is: there it gets its name when it is in place.
// One that we were killed over goes first.
func addNamed(inside *netlink.Handle, name, alias string, add func(name string) error) (netlink.Link, error) {
	as := name
	err := add(as)
	if _, free := inside.LinkByName(name); errors.Is(err, unix.EEXIST) && absent(free) {
		as = "fl~" + name[:min(len(name), unix.IFNAMSIZ-1-len("fl~"))]
		if left, err := inside.LinkByName(as); err == nil && ours(left) {
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
	err = mark(inside, have, alias)
	if err == nil && as != name {
		err = inside.LinkSetName(have, name)
	}
	if err != nil {
		return nil, errors.Join(err, inside.LinkDel(have))
	}
	have.Attrs().Alias, have.Attrs().Name = alias, name
	return have, nil
}

// refusedSubLink says what the kernel means by refusing to make the link. That
// its parent is of the right kind, a driver has seen to; others may have taken
// the parent since, or hold branches of their own.
func refusedSubLink(want plan.SubLink, err error) error {
	switch {
	case errors.Is(err, unix.EEXIST) && want.Kind == plan.VLAN:
		return fmt.Errorf("%s has VLAN %d already (%w): name the link that carries it as the parent, without a VLAN", want.Parent, want.VLAN, err)
	case errors.Is(err, unix.EEXIST):
		return occupied(want.Netns, want.Name)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("parent %s is taken (%w): it is a port of a bridge or bond, or carries links of another kind than %s", want.Parent, err, want.Kind)
	case errors.Is(err, unix.EINVAL) && want.Kind == plan.Macvlan:
		return fmt.Errorf("parent %s takes no macvlan of mode %s (%w): mode passthru is for one alone: see `ip -d link` for who branches from it, or name another parent", want.Parent, want.Mode, err)
	}
	return err
}

// adjustSubLink sets what can change on a living link.
func (h *Host) adjustSubLink(handle *netlink.Handle, have netlink.Link, want plan.SubLink) error {
	if have.Attrs().Alias != want.Alias() {
		if err := handle.LinkSetAlias(have, want.Alias()); err != nil {
			return err
		}
	}
	if err := adjustEnd(handle, have, want.MTU, want.MAC); err != nil {
		return err
	}
	settings := plan.LinkSettings(want)
	if want.Quiet {
		settings = append(settings, quiet(want)...)
	}
	return h.writeSettings(settings)
}

// quiet are the settings that plan.Branch.Quiet stands for.
func quiet(b plan.SubLink) []plan.Sysctl {
	return []plan.Sysctl{{Name: "net.ipv4.conf." + b.Name + ".arp_filter", Value: "1"},
		{Name: "net.ipv4.conf." + b.Name + ".arp_announce", Value: "2"}}
}

func (h *Host) delSubLink(b plan.SubLink) error {
	if b.Inside != "" {
		return h.delHostInterface(b)
	}
	handle, have, err := h.link(b.Netns, b.Name)
	if err != nil || !ours(have) {
		return err
	}
	return handle.LinkDel(have)
}

// readSubLink returns the link with the parts that the kernel has otherwise
// than wanted, or nil when it is missing, foreign, another's branch, or down.
func (h *Host) readSubLink(want plan.SubLink) (plan.Object, error) {
	if want.Inside != "" {
		return h.readHostInterface(want)
	}
	_, parent, err := h.link("", want.Parent)
	if err != nil {
		return nil, err
	}
	handle, link, err := h.link(want.Netns, want.Name)
	if err != nil {
		return nil, err
	}
	if !isUp(link) || !ours(link) || !h.branches(handle, link, parent, want) {
		return nil, nil
	}
	found := want
	found.MTU = link.Attrs().MTU
	found.Owner = strings.TrimPrefix(link.Attrs().Alias, plan.Mark+":")
	if want.MAC != "" {
		found.MAC = link.Attrs().HardwareAddr.String()
	}
	if found.IPv6, err = h.readIPv6(want, want.IPv6); err == nil && want.Quiet {
		found.Quiet, err = h.isQuiet(want)
	}
	return found, err
}

func (h *Host) isQuiet(b plan.SubLink) (bool, error) {
	for _, s := range quiet(b) {
		value, err := h.ReadSysctl(s)
		if errors.Is(err, ErrNoSetting) {
			continue
		}
		if err != nil || value != s.Value {
			return false, err
		}
	}
	return true, nil
}
