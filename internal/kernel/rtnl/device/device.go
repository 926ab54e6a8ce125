package device

import (
	"cmp"
	"errors"
	"fmt"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/link"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Theory of operation. Before a device is moved into a sandbox, it is marked with
// an alias that contains its state on the host. Then it is moved and renamed in one
// request. On its return it is moved and renamed in one request, its state is
// restored, and the mark is removed last. So at any time Fairlead is responsible
// for every marked device, in whichever namespace it is, and the host for every
// other device.
//
// When the last reference to a sandbox's namespace is gone, the kernel moves a
// physical device to the machine's first namespace. The device keeps its alias and
// its name in the sandbox or, if that name is taken, becomes devN. The kernel
// destroys a virtual device (veth, VLAN). This happens with a delay, and the first
// namespace need not be the host's. Therefore Fairlead keeps a reference to the
// namespace until it has moved the device back. The kernel moves the device only if
// Fairlead is killed.

// movedDevice is a device that this process has moved into a sandbox.
type movedDevice struct {
	ns *netns.Namespace
	// saved is the device's state on the host. It is not read from the alias,
	// because a workload that may change its links may also change the alias
	// (docs/adr/0018).
	saved savedDevice
}

// deviceLocation is where a marked device is.
type deviceLocation struct {
	// netns is the path of the namespace, empty for the host's.
	netns  string
	handle *netlink.Handle
	link   netlink.Link
	saved  savedDevice
}

// findDevice searches for a moved device: in its sandbox, in the sandbox into which
// this process has moved it, and on the host. It returns nil if the device is in
// none of them.
func (h *Handle) findDevice(d plan.Device) (*deviceLocation, error) {
	h.mu.Lock()
	before, known := h.devices[d.Key()]
	h.mu.Unlock()
	paths := []string{d.Netns}
	if known {
		paths = append(paths, before.ns.Path())
	}
	for _, path := range append(paths, "") {
		at, err := h.findIn(path, d, (*Handle).findMarked)
		if at != nil || err != nil {
			return at, err
		}
	}
	for _, path := range paths {
		at, err := h.findIn(path, d, (*Handle).findUnmarked)
		if at != nil || err != nil {
			return at, err
		}
	}
	return nil, nil
}

// findIn searches for the device in one namespace. It returns nil if the device is not there.
func (h *Handle) findIn(path string, d plan.Device,
	find func(*Handle, *netlink.Handle, string) (netlink.Link, savedDevice, error)) (*deviceLocation, error) {
	handle, err := h.At(path)
	if nlutil.Absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	link, alias, err := find(h, handle, d.Device)
	if link == nil || err != nil {
		return nil, err
	}
	return &deviceLocation{path, handle, link, h.savedState(d, alias)}, nil
}

// SetDevice moves the device into its sandbox from wherever it is.
func (h *Handle) SetDevice(d plan.Device) error {
	inside, err := h.At(d.Netns)
	if err != nil {
		return err // there is no sandbox; nothing was changed
	}
	at, err := h.findDevice(d)
	if err != nil {
		return err
	}
	if at == nil || at.netns != d.Netns || at.link.Attrs().Name != d.Name {
		if _, err := inside.LinkByName(d.Name); err == nil {
			return link.Occupied(d.Netns, d.Name)
		}
	}
	if at == nil {
		if at, err = h.claim(d.Device); err != nil {
			return err
		}
	}
	if err := h.place(at, d); err != nil {
		return err
	}
	if err := h.keepNetns(d, at.saved); err != nil {
		return err
	}
	have, err := inside.LinkByName(d.Name)
	if err != nil {
		return err
	}
	if mtu := cmp.Or(d.MTU, at.saved.MTU); mtu != 0 && have.Attrs().MTU != mtu {
		if err := inside.LinkSetMTU(have, mtu); err != nil {
			return fmt.Errorf("set mtu %d: %w: use an MTU that the device supports (`ip -d link` shows the range)",
				mtu, err)
		}
	}
	if mac := cmp.Or(d.MAC, at.saved.MAC); mac != "" && have.Attrs().HardwareAddr.String() != mac {
		if err := setMAC(inside, have, mac); err != nil {
			return err
		}
	}
	if err := h.links.SetLinkSettings(d); err != nil {
		return err
	}
	return inside.LinkSetUp(have)
}

// place moves the device into its sandbox and gives it its name there.
func (h *Handle) place(at *deviceLocation, d plan.Device) error {
	if at.netns == d.Netns {
		return rename(at.handle, at.link, d.Name)
	}
	err := h.move(at.netns, d.Netns, at.link, d.Name)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: a device of this kind (%s) cannot leave its namespace: "+
			"use a macvlan or ipvlan link on it", err, at.link.Type())
	}
	return err
}

// rename changes a link's name. It takes the link down first, as the kernel
// requires.
func rename(handle *netlink.Handle, link netlink.Link, name string) error {
	if link.Attrs().Name == name {
		return nil
	}
	if err := handle.LinkSetDown(link); err != nil {
		return err
	}
	return handle.LinkSetName(link, name)
}

// move moves a link to another namespace and gives it a name, which may be a
// pattern such as dev%d. The kernel takes the link down.
func (h *Handle) move(from, to string, link netlink.Link, name string) error {
	source, err := h.ns.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := h.ns.Open(to)
	if err != nil {
		return err
	}
	defer target.Close()
	return source.Do(func() error {
		_, err := moveRequest(link.Attrs().Index, int(target.File().Fd()), name).Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}

// moveRequest returns the netlink request of `ip link set … netns … name …`.
func moveRequest(index, netns int, name string) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(netns))))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	return req
}

// DelDevice moves the device back to the host.
func (h *Handle) DelDevice(d plan.Device) error {
	at, err := h.findDevice(d)
	if err == nil && at != nil {
		err = h.returnToHost(at)
	}
	if err != nil {
		return err
	}
	return h.releaseNetns(d)
}

// returnToHost moves the device to the host and restores its state. If another link
// of the host has its name, the device keeps its mark and the name devN, and
// returnToHost returns an error until the name is free.
func (h *Handle) returnToHost(at *deviceLocation) error {
	host, err := h.At("")
	if err != nil {
		return err
	}
	saved, link := at.saved, at.link
	if at.netns != "" {
		name := freeName(host, saved.Name)
		if err := h.move(at.netns, "", link, name); err != nil {
			return fmt.Errorf("move the device back to the host: %w", err)
		}
		if link, err = host.LinkByName(name); err != nil {
			return fmt.Errorf("find %s after moving it back to the host: %w", saved.Name, err)
		}
		if err := saved.writeMark(host, link); err != nil {
			return err
		}
	}
	renamed := rename(host, link, saved.Name)
	if errors.Is(renamed, unix.EEXIST) {
		renamed = fmt.Errorf("it is back as %s, because another link is called %s now: rename that one",
			link.Attrs().Name, saved.Name)
	}
	if err := errors.Join(saved.restore(host, link), renamed); err != nil {
		return err
	}
	return host.LinkSetAlias(link, saved.Alias)
}

// keepNetns remembers in which sandbox the device is, and keeps a reference to that
// namespace.
func (h *Handle) keepNetns(d plan.Device, saved savedDevice) error {
	ns, err := netns.Open(d.Netns)
	if err != nil {
		return err
	}
	err = h.releaseNetns(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.devices[d.Key()] = movedDevice{ns, saved}
	return err
}

// releaseNetns forgets the device's sandbox and closes the reference to its
// namespace.
func (h *Handle) releaseNetns(d plan.Device) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.devices[d.Key()]
	delete(h.devices, d.Key())
	if !ok {
		return nil
	}
	h.CloseAt(p.ns.Path())
	return p.ns.Close()
}

// ReadDevice returns the device's state in its sandbox, or nil if it is in none.
func (h *Handle) ReadDevice(want plan.Device) (plan.Object, error) {
	at, err := h.findDevice(want)
	if err != nil || at == nil || at.netns == "" {
		return nil, err
	}
	a := at.link.Attrs()
	found := want
	found.Netns, found.Name, found.Down = at.netns, a.Name, !rtnl.IsUp(at.link)
	if want.MTU != 0 {
		found.MTU = a.MTU
	}
	if want.MAC != "" {
		found.MAC = a.HardwareAddr.String()
	}
	if at.netns != want.Netns {
		return found, nil
	}
	if found.IPv6, err = h.ReadIPv6(found, want.IPv6); err != nil {
		return nil, err
	}
	return found, h.keepNetns(want, at.saved)
}

// LeftoverDevices returns the devices among the host's links that still carry the
// mark of a moved device.
func LeftoverDevices(links []netlink.Link) plan.Plan {
	var found plan.Plan
	for _, l := range links {
		if w, ok := parseMark(l); ok {
			found = append(found, plan.Device{Device: w.Device, Name: l.Attrs().Name})
		}
	}
	return found
}
