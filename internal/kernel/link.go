package kernel

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// setLink makes the link or brings ours to the wanted state. A foreign link
// of that name is an error, never a victim.
func (h *Host) setLink(want plan.Link) error {
	handle, err := h.at(want.Netns)
	if err != nil {
		return err
	}
	if want.Kind == plan.Loopback {
		return linkUp(handle, "lo")
	}
	if want.Kind == plan.Veth && !want.Inside {
		// Before anything goes: is there a sandbox at all?
		if _, err := h.at(want.PeerNetns); err != nil {
			return err
		}
	}
	have, err := managedLink(handle, want.Netns, want.Name,
		func(have netlink.Link) bool { return h.samePeer(have, want) },
		func() (netlink.Link, error) { return h.addLink(handle, want) })
	if err != nil {
		return err
	}
	return h.adjustLink(handle, have, want)
}

// managedLink returns the link of that name: the one that is there if it fits, else
// one that add makes, in the place of ours if there is one. A foreign link of
// that name is an error, never a victim.
func managedLink(handle *netlink.Handle, netns, name string, fits func(netlink.Link) bool, add func() (netlink.Link, error)) (netlink.Link, error) {
	have, err := handle.LinkByName(name)
	switch {
	case absent(err):
		return add()
	case err != nil:
		return nil, err
	case !ours(have):
		return nil, occupied(netns, name)
	case have.Attrs().Group != newborn && fits(have):
		return have, nil
	}
	if err := handle.LinkDel(have); err != nil {
		return nil, fmt.Errorf("replace: %w", err)
	}
	return add()
}

// occupied says that another link of the namespace, the host's or a sandbox's,
// has the name.
func occupied(netns, name string) error {
	if netns == "" {
		return errors.New("a link of that name exists and is not Fairlead's: rename it or choose another name")
	}
	return fmt.Errorf("the sandbox has an interface %s already: name another in the endpoint", name)
}

// newborn is the group (`ip link … group`) of a link of ours that has no alias
// yet: Linux takes a group in the request that makes a link, and an alias only
// afterwards. So we know one that we were killed over.
const newborn = 0x66616972

// addMarked makes the link and marks it at once.
func addMarked(handle *netlink.Handle, link netlink.Link, alias string) error {
	link.Attrs().Group = newborn
	if err := handle.LinkAdd(link); err != nil {
		return err
	}
	if err := mark(handle, link, alias); err != nil {
		return errors.Join(err, handle.LinkDel(link))
	}
	return nil
}

// mark gives a newborn link its alias.
func mark(handle *netlink.Handle, link netlink.Link, alias string) error {
	if err := handle.LinkSetAlias(link, alias); err != nil {
		return err
	}
	return handle.LinkSetGroup(link, 0)
}

func ours(l netlink.Link) bool {
	a := l.Attrs()
	return strings.HasPrefix(a.Alias, plan.Mark+":") || a.Group == newborn
}

// samePeer reports whether an existing link is the wanted one: of the same
// kind, and a veth's other end where it belongs.
func (h *Host) samePeer(have netlink.Link, want plan.Link) bool {
	if have.Type() != string(want.Kind) {
		return false
	}
	if want.Kind != plan.Veth || want.Inside {
		return true
	}
	peer, err := h.peer(want)
	return err == nil && peer.Attrs().ParentIndex == have.Attrs().Index &&
		have.Attrs().ParentIndex == peer.Attrs().Index && h.knownAs(want.PeerNetns, have.Attrs().NetNsID)
}

// peer returns the far end of a veth.
func (h *Host) peer(l plan.Link) (netlink.Link, error) {
	_, peer, err := h.link(l.PeerNetns, l.Peer)
	return peer, err
}

// knownAs reports whether the host knows the namespace by that id; interface
// indices alone are alike in many namespaces. -1 is the host's own.
func (h *Host) knownAs(path string, id int) bool {
	ns, err := h.open(path)
	if err != nil {
		return false
	}
	defer ns.Close()
	host, err := h.at("")
	if err != nil {
		return false
	}
	known, err := host.GetNetNsIdByFd(int(ns.File().Fd()))
	return err == nil && known == id
}

// addLink makes the link.
func (h *Host) addLink(handle *netlink.Handle, want plan.Link) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = want.Name, want.MTU
	var err error
	if attrs.HardwareAddr, err = parseMAC(want.MAC); err != nil {
		return nil, err
	}
	var link netlink.Link = &netlink.Bridge{LinkAttrs: attrs}
	if want.Kind == plan.Veth {
		ns, err := h.open(want.PeerNetns)
		if err != nil {
			return nil, err
		}
		defer ns.Close()
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerMTU = want.Peer, uint32(want.MTU)
		veth.PeerNamespace = netlink.NsFd(ns.File().Fd())
		if veth.PeerHardwareAddr, err = parseMAC(want.PeerMAC); err != nil {
			return nil, err
		}
		link = veth
	}
	err = addMarked(handle, link, want.Alias())
	if errors.Is(err, unix.EEXIST) && want.Kind == plan.Veth {
		err = occupied(want.PeerNetns, want.Peer)
	}
	return link, err
}

// adjustLink sets what can change on a living link, and brings it up.
func (h *Host) adjustLink(handle *netlink.Handle, have netlink.Link, want plan.Link) error {
	if err := adjustEnd(handle, have, want.MTU, want.MAC); err != nil {
		return err
	}
	if err := adjustMaster(handle, have, want); err != nil {
		return err
	}
	if want.Kind == plan.Bridge {
		if err := h.setBridgeFilter(have, want.Filter); err != nil {
			return err
		}
	}
	if err := h.setLinkSettings(want); err != nil {
		return err
	}
	if want.Kind == plan.Veth && !want.Inside {
		if err := h.adjustPeer(want); err != nil {
			return err
		}
	}
	return handle.LinkSetUp(have)
}

// adjustEnd sets what both ends of a link have.
func adjustEnd(handle *netlink.Handle, have netlink.Link, mtu int, mac string) error {
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

func adjustMaster(handle *netlink.Handle, have netlink.Link, want plan.Link) error {
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

func (h *Host) adjustPeer(want plan.Link) error {
	inside, err := h.at(want.PeerNetns)
	if err != nil {
		return err
	}
	peer, err := inside.LinkByName(want.Peer)
	if err != nil {
		return err
	}
	if err := adjustEnd(inside, peer, want.MTU, want.PeerMAC); err != nil {
		return err
	}
	return inside.LinkSetUp(peer)
}

func (h *Host) delLink(l plan.Link) error {
	if l.Kind == plan.Loopback {
		return nil
	}
	handle, err := h.at(l.Netns)
	if err != nil {
		return err
	}
	have, err := handle.LinkByName(l.Name)
	if err != nil {
		return err
	}
	if !ours(have) {
		return nil
	}
	return handle.LinkDel(have)
}
