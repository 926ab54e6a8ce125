package device

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// claim finds a device of the host, checks that the host can do without it, and
// marks it.
func (h *Handle) claim(device string) (*deviceLocation, error) {
	host, err := h.At("")
	if err != nil {
		return nil, err
	}
	name := device
	if plan.PCIAddress(device) {
		name, err = rtnl.PCILink(device)
		if errors.Is(err, os.ErrNotExist) {
			return nil, errors.New("no network device of this host has that PCI address: " +
				"`ls -l /sys/class/net` lists the devices; a function that is bound to vfio-pci has none")
		}
		if err != nil {
			return nil, err
		}
	}
	link, err := host.LinkByName(name)
	if nlutil.Absent(err) {
		return nil, fmt.Errorf("the host has no device %s: `ip link` lists its devices; "+
			"if a sandbox has the device, detach it there", name)
	}
	if err != nil {
		return nil, err
	}
	if err := checkMovable(host, link); err != nil {
		return nil, fmt.Errorf("%s cannot be moved into a sandbox: %w", name, err)
	}
	w, err := describeDevice(host, device, link)
	if err != nil {
		return nil, err
	}
	mark, err := w.mark()
	if err != nil {
		return nil, err
	}
	return &deviceLocation{"", host, link, w}, wrapped("mark the device", host.LinkSetAlias(link, mark))
}

// checkMovable returns an error with the reason if the host cannot do without the
// link.
func checkMovable(host *netlink.Handle, link netlink.Link) error {
	a := link.Attrs()
	_, wireless := os.Lstat(filepath.Join("/sys/class/net", a.Name, "phy80211"))
	w, marked := parseMark(link)
	switch {
	case a.Flags&net.FlagLoopback != 0:
		return errors.New("it is the loopback interface; every sandbox has one already")
	case rtnl.Ours(link):
		return errors.New("it is Fairlead's own link: name another device of the host")
	case marked:
		return fmt.Errorf("it is already attached as %s", w.Device)
	case wireless == nil:
		return errors.New("it is wireless and can only be moved with its radio: `iw phy PHY set netns PID`")
	}
	if a.MasterIndex != 0 {
		master := fmt.Sprintf("link %d", a.MasterIndex)
		if m, err := host.LinkByIndex(a.MasterIndex); err == nil {
			master = m.Attrs().Name
		}
		return fmt.Errorf("it is a port of %s: remove it with `ip link set %s nomaster`", master, escape.Shell(a.Name))
	}
	if err := checkNoUpperLink(host, link); err != nil {
		return err
	}
	return checkNoRoute(host, link)
}

// checkNoUpperLink returns an error if another link of the host uses this link as
// its parent.
func checkNoUpperLink(host *netlink.Handle, link netlink.Link) error {
	links, err := nlutil.Retry(host.LinkList)
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		if a.ParentIndex == link.Attrs().Index && a.NetNsID < 0 && l.Type() != "veth" {
			return fmt.Errorf("%s (%s) uses it as its parent: remove that link first", a.Name, l.Type())
		}
	}
	return nil
}

// Protocols of the routes that the kernel creates itself, from addresses and router
// advertisements (rtnetlink(7)).
var managedRoutes = []netlink.RouteProtocol{unix.RTPROT_UNSPEC, unix.RTPROT_REDIRECT, unix.RTPROT_KERNEL,
	unix.RTPROT_RA}

// checkNoRoute returns an error if a route of the host uses the link and would be
// lost with it.
func checkNoRoute(host *netlink.Handle, link netlink.Link) error {
	// Table 0 means all tables.
	routes, err := nlutil.Retry(func() ([]netlink.Route, error) {
		return host.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if !usesLink(r, link) || r.Table == unix.RT_TABLE_LOCAL {
			continue
		}
		isOther := func(o netlink.Route) bool { return isDefault(o) && o.Family == r.Family && !usesLink(o, link) }
		if isDefault(r) && !slices.ContainsFunc(routes, isOther) {
			return errors.New("the host's default route uses it, and without that the host reaches only " +
				"its own networks: add another default route first, or choose another device")
		}
		if !slices.Contains(managedRoutes, r.Protocol) {
			return fmt.Errorf("the host's route to %s uses it and would be lost: "+
				"remove the route first, or configure the network manager to ignore the device", destination(r))
		}
	}
	return nil
}

func usesLink(r netlink.Route, link netlink.Link) bool {
	uses := func(index int) bool { return index == link.Attrs().Index }
	return uses(r.LinkIndex) ||
		slices.ContainsFunc(r.MultiPath, func(n *netlink.NexthopInfo) bool { return uses(n.LinkIndex) })
}

// isDefault reports whether the route is a default route. An unreachable default
// route, which IPv6 has in every namespace, does not count.
func isDefault(r netlink.Route) bool {
	return r.Type == unix.RTN_UNICAST && (r.Dst == nil || nlutil.Prefix(r.Dst.IP, r.Dst.Mask).Bits() == 0)
}

func destination(r netlink.Route) string {
	if isDefault(r) {
		return "anywhere"
	}
	return r.Dst.String()
}
