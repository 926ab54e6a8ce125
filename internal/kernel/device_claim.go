package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// claim finds a device of the host's, makes sure that it can be spared, and
// marks it.
func (h *Host) claim(device string) (*whereabouts, error) {
	host, err := h.at("")
	if err != nil {
		return nil, err
	}
	name := device
	if plan.PCIAddress(device) {
		name, err = pciLink(device)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("no network device of this host has that PCI address: `ls -l /sys/class/net` shows which there are; a function that is bound to vfio-pci has none")
		}
		if err != nil {
			return nil, err
		}
	}
	link, err := host.LinkByName(name)
	if absent(err) {
		return nil, fmt.Errorf("the host has no device %s: `ip link` lists those that it has; if a sandbox has it already, detach it there", name)
	}
	if err != nil {
		return nil, err
	}
	if err := spare(host, link); err != nil {
		return nil, fmt.Errorf("%s cannot be handed over: %w", name, err)
	}
	w, err := describeDevice(host, device, link)
	if err != nil {
		return nil, err
	}
	mark, err := w.mark()
	if err != nil {
		return nil, err
	}
	return &whereabouts{"", host, link, w}, wrapped("mark it", host.LinkSetAlias(link, mark))
}

// spare says why the host cannot do without the link.
func spare(host *netlink.Handle, link netlink.Link) error {
	a := link.Attrs()
	_, wireless := os.Lstat(filepath.Join("/sys/class/net", a.Name, "phy80211"))
	w, marked := was(link)
	switch {
	case a.Flags&net.FlagLoopback != 0:
		return errors.New("it is the loopback interface, which every sandbox has of its own")
	case ours(link):
		return errors.New("it is Fairlead's own link: name a device of the host's")
	case marked:
		return fmt.Errorf("it is handed over as %s already", w.Device)
	case wireless == nil:
		return errors.New("it is wireless, and moves with its radio only: `iw phy PHY set netns PID`")
	}
	if a.MasterIndex != 0 {
		master := fmt.Sprintf("link %d", a.MasterIndex)
		if m, err := host.LinkByIndex(a.MasterIndex); err == nil {
			master = m.Attrs().Name
		}
		return fmt.Errorf("it is a port of %s: take it out with `ip link set %s nomaster`", master, escape.Shell(a.Name))
	}
	if err := unburdened(host, link); err != nil {
		return err
	}
	return unrouted(host, link)
}

// unburdened says which link of the host stands on this one.
func unburdened(host *netlink.Handle, link netlink.Link) error {
	links, err := retry(host.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		if a.ParentIndex == link.Attrs().Index && a.NetNsID < 0 && l.Type() != "veth" {
			return fmt.Errorf("%s (%s) stands on it: remove that first", a.Name, l.Type())
		}
	}
	return nil
}

// Protocols of routes that the kernel makes anew by itself, from addresses and
// router advertisements (rtnetlink(7)).
var managedRoutes = []netlink.RouteProtocol{unix.RTPROT_UNSPEC, unix.RTPROT_REDIRECT, unix.RTPROT_KERNEL, unix.RTPROT_RA}

// unrouted says which route of the host goes by the link and would be lost
// with it.
func unrouted(host *netlink.Handle, link netlink.Link) error {
	// A table of 0 stands for all of them.
	routes, err := retry(func() ([]netlink.Route, error) {
		return host.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if !goesBy(r, link) || r.Table == unix.RT_TABLE_LOCAL {
			continue
		}
		isOther := func(o netlink.Route) bool { return isDefault(o) && o.Family == r.Family && !goesBy(o, link) }
		if isDefault(r) && !slices.ContainsFunc(routes, isOther) {
			return errors.New("the host's default route goes by it, so the host would be cut off from all but its own networks: " +
				"give the host another first, or hand over another device")
		}
		if !slices.Contains(managedRoutes, r.Protocol) {
			return fmt.Errorf("the host's route to %s goes by it and would be lost: remove it first, or have the network manager leave the device alone", destination(r))
		}
	}
	return nil
}

func goesBy(r netlink.Route, link netlink.Link) bool {
	by := func(index int) bool { return index == link.Attrs().Index }
	return by(r.LinkIndex) || slices.ContainsFunc(r.MultiPath, func(n *netlink.NexthopInfo) bool { return by(n.LinkIndex) })
}

// isDefault reports whether a route leads anywhere; an unreachable one, of
// which IPv6 has one in every namespace, does not.
func isDefault(r netlink.Route) bool {
	return r.Type == unix.RTN_UNICAST && (r.Dst == nil || toPrefix(r.Dst.IP, r.Dst.Mask).Bits() == 0)
}

func destination(r netlink.Route) string {
	if isDefault(r) {
		return "anywhere"
	}
	return r.Dst.String()
}
