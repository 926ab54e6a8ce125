package link

import (
	"errors"
	"fmt"
	"net"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetLink creates the link, or changes Fairlead's existing link to match. If
// another program's link has the name, it returns an error and does not touch that
// link.
func (h *Handle) SetLink(want plan.Link) error {
	handle, err := h.At(want.Netns)
	if err != nil {
		return err
	}
	if want.Kind == plan.Loopback {
		return linkUp(handle, "lo")
	}
	if want.Kind == plan.Veth && !want.Inside {
		// Check that the sandbox exists before anything changes.
		if _, err := h.At(want.PeerNetns); err != nil {
			return err
		}
	}
	have, err := Managed(handle, want.Netns, want.Name,
		func(have netlink.Link) bool { return h.samePeer(have, want) },
		func() (netlink.Link, error) { return h.addLink(handle, want) })
	if err != nil {
		return err
	}
	return h.adjustLink(handle, have, want)
}

// Managed returns the link with that name. It keeps Fairlead's existing link if
// that fits, and else replaces or creates the link with add. If another program's
// link has the name, it returns an error and does not touch that link.
func Managed(handle *netlink.Handle, netns, name string, fits func(netlink.Link) bool,
	add func() (netlink.Link, error)) (netlink.Link, error) {
	have, err := handle.LinkByName(name)
	switch {
	case nlutil.Absent(err):
		return add()
	case err != nil:
		return nil, err
	case !rtnl.Ours(have):
		return nil, Occupied(netns, name)
	case have.Attrs().Group != rtnl.NewLinkGroup && fits(have):
		return have, nil
	}
	if err := handle.LinkDel(have); err != nil {
		return nil, fmt.Errorf("replace: %w", err)
	}
	return add()
}

// Occupied returns the error that another link in the namespace, the host's or a
// sandbox's, has the name.
func Occupied(netns, name string) error {
	if netns == "" {
		return errors.New("a link of that name exists and is not Fairlead's: rename it or choose another name")
	}
	return fmt.Errorf("the sandbox has an interface %s already: name another in the endpoint", name)
}

// AddMarked creates the link, marks it as Fairlead's and puts it into the group.
func AddMarked(handle *netlink.Handle, link netlink.Link, alias string, group plan.LinkGroup) error {
	link.Attrs().Group = rtnl.NewLinkGroup
	if err := handle.LinkAdd(link); err != nil {
		return err
	}
	if err := mark(handle, link, alias, group); err != nil {
		return errors.Join(err, handle.LinkDel(link))
	}
	return nil
}

// mark sets a new link's alias, and then its group: a link with rtnl.NewLinkGroup is
// not complete.
func mark(handle *netlink.Handle, link netlink.Link, alias string, group plan.LinkGroup) error {
	if err := handle.LinkSetAlias(link, alias); err != nil {
		return err
	}
	link.Attrs().Group = uint32(group)
	return handle.LinkSetGroup(link, int(group))
}

// adjustGroup puts an existing link into the group, unless that is 0. Until then the
// rules that match the group do not apply to the link's packets.
func adjustGroup(handle *netlink.Handle, have netlink.Link, group plan.LinkGroup) error {
	if group == 0 || have.Attrs().Group == uint32(group) {
		return nil
	}
	return handle.LinkSetGroup(have, int(group))
}

// samePeer reports whether an existing link has the wanted kind and, if it is a
// veth, the wanted peer in the right namespace.
func (h *Handle) samePeer(have netlink.Link, want plan.Link) bool {
	if have.Type() != string(want.Kind) {
		return false
	}
	if want.Kind != plan.Veth || want.Inside {
		return true
	}
	peer, err := h.peer(want)
	return err == nil && peer.Attrs().ParentIndex == have.Attrs().Index &&
		have.Attrs().ParentIndex == peer.Attrs().Index && h.KnownAs(want.PeerNetns, have.Attrs().NetNsID)
}

// peer returns the other end of a veth.
func (h *Handle) peer(l plan.Link) (netlink.Link, error) {
	peer, err := h.LinkByName(l.PeerNetns, l.Peer)
	return peer, err
}

// NewAttrs returns the attributes for a new link. If the MAC address is empty, the
// kernel chooses one.
func NewAttrs(name string, mtu int, mac string) (attrs netlink.LinkAttrs, err error) {
	attrs = netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	attrs.HardwareAddr, err = rtnl.ParseMAC(mac)
	return attrs, err
}

// addLink creates the link.
func (h *Handle) addLink(handle *netlink.Handle, want plan.Link) (netlink.Link, error) {
	attrs, err := NewAttrs(want.Name, want.MTU, want.MAC)
	if err != nil {
		return nil, err
	}
	var link netlink.Link = &netlink.Bridge{LinkAttrs: attrs}
	if want.Kind == plan.Veth {
		ns, err := h.ns.Open(want.PeerNetns)
		if err != nil {
			return nil, err
		}
		defer ns.Close()
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerMTU = want.Peer, uint32(want.MTU)
		veth.PeerNamespace = netlink.NsFd(ns.File().Fd())
		if veth.PeerHardwareAddr, err = rtnl.ParseMAC(want.PeerMAC); err != nil {
			return nil, err
		}
		link = veth
	}
	err = AddMarked(handle, link, want.Alias(), want.Group)
	if errors.Is(err, unix.EEXIST) && want.Kind == plan.Veth {
		err = Occupied(want.PeerNetns, want.Peer)
	}
	return link, err
}

// adjustLink sets the properties that can change on an existing link, and sets the
// link up.
func (h *Handle) adjustLink(handle *netlink.Handle, have netlink.Link, want plan.Link) error {
	if err := adjustGroup(handle, have, want.Group); err != nil {
		return err
	}
	if err := h.adjustMoved(have, want); err != nil {
		return err
	}
	if err := AdjustEnd(handle, have, want.MTU, want.MAC); err != nil {
		return err
	}
	if err := AdjustMaster(handle, have, want); err != nil {
		return err
	}
	if want.Kind == plan.Bridge {
		if err := h.setBridgeFilter(have, want.Filter); err != nil {
			return err
		}
	}
	if err := h.SetLinkSettings(want); err != nil {
		return err
	}
	if want.Kind == plan.Veth && !want.Inside {
		if err := h.adjustPeer(want); err != nil {
			return err
		}
	}
	if err := handle.LinkSetUp(have); err != nil {
		return err
	}
	return syncCarrier(handle, have)
}

// syncCarrier makes the kernel handle a new carrier of the link now. Otherwise it does that up to a second later if
// other links have changed, and a bridge drops the frames of the port until then. Newer kernels do it when the
// link is queried (rtnl_getlink in net/core/rtnetlink.c).
func syncCarrier(handle *netlink.Handle, link netlink.Link) error {
	_, err := handle.LinkByIndex(link.Attrs().Index)
	return err
}

// AdjustEnd sets the MTU and, unless mac is empty, the hardware address of one end
// of a link.
func AdjustEnd(handle *netlink.Handle, have netlink.Link, mtu int, mac string) error {
	if have.Attrs().MTU != mtu {
		if err := handle.LinkSetMTU(have, mtu); err != nil {
			return fmt.Errorf("set mtu: %w", err)
		}
	}
	if mac == "" || have.Attrs().HardwareAddr.String() == mac {
		return nil
	}
	addr, err := net.ParseMAC(mac)
	if err == nil {
		err = handle.LinkSetHardwareAddr(have, addr)
	}
	if err != nil {
		return fmt.Errorf("set hardware address: %w", err)
	}
	return nil
}

// AdjustMaster makes the link a port of the wanted bridge, or of none.
func AdjustMaster(handle *netlink.Handle, have netlink.Link, want plan.Link) error {
	if want.Master == "" {
		if have.Attrs().MasterIndex == 0 {
			return nil
		}
		return handle.LinkSetNoMaster(have)
	}
	master, err := handle.LinkByName(want.Master)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", want.Master, err)
	}
	if err := handle.LinkSetMasterByIndex(have, master.Attrs().Index); err != nil {
		return err
	}
	return handle.LinkSetHairpin(have, want.Hairpin)
}

func (h *Handle) adjustPeer(want plan.Link) error {
	inside, err := h.At(want.PeerNetns)
	if err != nil {
		return err
	}
	peer, err := inside.LinkByName(want.Peer)
	if err != nil {
		return err
	}
	if err := AdjustEnd(inside, peer, want.MTU, want.PeerMAC); err != nil {
		return err
	}
	return inside.LinkSetUp(peer)
}

// adjustMoved changes the MTU of a veth's far end that another program has moved into a
// sandbox, before that of the end on the host: a veth drops frames that are larger than
// the MTU of the receiving end. A sandbox that has ended, or that does not have the end,
// is no error.
func (h *Handle) adjustMoved(have netlink.Link, want plan.Link) error {
	if !want.Inside || want.Sandbox == "" || have.Attrs().MTU == want.MTU {
		return nil
	}
	ns, err := h.ns.Open(want.Sandbox)
	if err != nil {
		return nil
	}
	defer ns.Close()
	inside, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", want.Sandbox, err)
	}
	defer inside.Close()
	peer, err := inside.LinkByIndex(have.Attrs().ParentIndex)
	if err != nil || peer.Type() != string(plan.Veth) || peer.Attrs().ParentIndex != have.Attrs().Index ||
		!h.KnownAs(want.Sandbox, have.Attrs().NetNsID) {
		return nil
	}
	if err := AdjustEnd(inside, peer, want.MTU, ""); err != nil && !nlutil.Absent(err) {
		return err
	}
	return nil
}

// DelLink deletes the link.
func (h *Handle) DelLink(l plan.Link) error {
	if l.Kind == plan.Loopback {
		return nil
	}
	handle, err := h.At(l.Netns)
	if err != nil {
		return err
	}
	have, err := handle.LinkByName(l.Name)
	if err != nil {
		return err
	}
	if !rtnl.Ours(have) {
		return nil
	}
	return handle.LinkDel(have)
}

func linkUp(handle *netlink.Handle, name string) error {
	link, err := handle.LinkByName(name)
	if err != nil {
		return err
	}
	return handle.LinkSetUp(link)
}
