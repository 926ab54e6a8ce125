package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"fairlead/internal/kernel/netns"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Uplink connects a host to another machine: a macvlan on a link of this process's
// network namespace.
type Uplink struct {
	// Link is the name of that link.
	Link string
	// MAC is the address of the macvlan, Peer that of the macvlan at the other
	// machine.
	MAC, Peer net.HardwareAddr
}

// WireOut gives the host a link of that name and MTU which connects it with an uplink.
// The neighbours of the link are fixed: all of them have the address of the other
// machine's macvlan. So several pairs of hosts can have the same addresses on one
// link, and no packet goes to any other machine. The kernel deletes the link with the
// host's namespace.
func WireOut(h *Host, name string, mtu int, up Uplink, neighbours []netip.Addr) error {
	if err := addUplink(h, name, mtu, up); err != nil {
		return err
	}
	inside, err := h.links.At("")
	if err != nil {
		return err
	}
	link, err := inside.LinkByName(name)
	if err == nil {
		err = inside.LinkSetARPOff(link) // before the link is up, so it is never used
	}
	if err == nil {
		err = inside.LinkSetUp(link)
	}
	if err == nil {
		err = h.FixNeighbours("", name, up.Peer, neighbours)
	}
	if err != nil {
		return fmt.Errorf("connect wire %s with link %s: %w", name, up.Link, err)
	}
	return nil
}

// FixNeighbours switches ARP and neighbour discovery of a link of the host or of a
// sandbox off, and gives it neighbours that all have the same hardware address.
func (h *Host) FixNeighbours(sandbox, name string, peer net.HardwareAddr, neighbours []netip.Addr) error {
	inside, err := h.links.At(sandbox)
	if err != nil {
		return err
	}
	link, err := inside.LinkByName(name)
	if err == nil && link.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		err = inside.LinkSetARPOff(link) // the kernel deletes the link's neighbours
	}
	for _, addr := range neighbours {
		if err != nil {
			break
		}
		err = inside.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: addr.AsSlice(), HardwareAddr: peer})
		if addr.Is6() && errors.Is(err, unix.EINVAL) {
			err = nil // IPv6 is off on the link
		}
	}
	if err != nil {
		return fmt.Errorf("set the neighbours of link %s: %w", name, err)
	}
	return nil
}

// KeepQuiet makes links that are added to this thread's network namespace later send
// no router solicitation. Other packets that the kernel sends by itself need ARP.
func KeepQuiet() error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/router_solicitations", []byte("0"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // without IPv6
	}
	return err
}

// addUplink creates the macvlan in the host's namespace.
func addUplink(h *Host, name string, mtu int, up Uplink) error {
	machine, err := netns.Open("")
	if err != nil {
		return err
	}
	defer machine.Close()
	outside, err := machine.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer outside.Close()
	parent, err := outside.LinkByName(up.Link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", up.Link, err)
	}
	if at := parent.Attrs(); at.EncapType != "ether" {
		return fmt.Errorf("link %s is of type %s: a wire needs Ethernet", up.Link, at.EncapType)
	} else if at.MTU < mtu {
		return fmt.Errorf("link %s has an MTU of %d bytes, and the path needs %d", up.Link, at.MTU, mtu)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = name, mtu, up.MAC
	attrs.ParentIndex, attrs.Namespace = parent.Attrs().Index, netlink.NsFd(h.ns.File().Fd())
	err = outside.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE})
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("create wire %s on link %s: %w: the link is a port of a bridge or bond: expose the bridge "+
			"or bond", name, up.Link, err)
	}
	if err != nil {
		return fmt.Errorf("create wire %s on link %s: %w", name, up.Link, err)
	}
	return nil
}
