package kernel

import (
	"cmp"
	"errors"
	"fmt"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Theory of operation. A device that is handed over is marked first, by an
// alias that says what it was, and then moved and renamed in one request; on
// its way back it is moved and renamed in one request, put right, and loses
// the mark last. So at every moment a marked device is ours to put right,
// wherever it is, and any other is the host's.
//
// When nothing keeps a sandbox's namespace any more, the kernel brings a
// physical device back to the machine's first namespace, by its name of the
// sandbox or, where that is taken, as devN, and its alias comes along; a virtual
// one (veth, VLAN) it destroys. It does so some time later, and that namespace
// need not be ours. So we keep the namespace ourselves until we have fetched
// the device, and leave it to the kernel only when we are killed.

// placed is where we have put a device.
type placed struct {
	ns *Netns
	// was is what the device was before: a workload that may change its links
	// may change the alias too, which is not to decide what the host gets
	// (docs/adr/0018).
	was wasDevice
}

// whereabouts is where a marked device is.
type whereabouts struct {
	// netns is the path of the namespace, empty for the host's.
	netns  string
	handle *netlink.Handle
	link   netlink.Link
	was    wasDevice
}

// findDevice looks for a device that is handed over: in its sandbox, where we
// have put it before, and on the host. Nil means that it is in none.
func (h *Host) findDevice(d plan.Device) (*whereabouts, error) {
	h.mu.Lock()
	before, known := h.devices[d.Key()]
	h.mu.Unlock()
	paths := []string{d.Netns}
	if known {
		paths = append(paths, before.ns.Path())
	}
	for _, path := range append(paths, "") {
		at, err := h.describeIn(path, d, (*Host).findMarked)
		if at != nil || err != nil {
			return at, err
		}
	}
	for _, path := range paths {
		at, err := h.describeIn(path, d, (*Host).findUnmarked)
		if at != nil || err != nil {
			return at, err
		}
	}
	return nil, nil
}

// describeIn looks for the device in one namespace. Nil means that it is not there.
func (h *Host) describeIn(path string, d plan.Device, find func(*Host, *netlink.Handle, string) (netlink.Link, wasDevice, error)) (*whereabouts, error) {
	handle, err := h.at(path)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	link, alias, err := find(h, handle, d.Device)
	if link == nil || err != nil {
		return nil, err
	}
	return &whereabouts{path, handle, link, h.remembered(d, alias)}, nil
}

// setDevice brings the device into its sandbox from wherever it is.
func (h *Host) setDevice(d plan.Device) error {
	inside, err := h.at(d.Netns)
	if err != nil {
		return err // before anything goes: there is no sandbox
	}
	at, err := h.findDevice(d)
	if err != nil {
		return err
	}
	if at == nil || at.netns != d.Netns || at.link.Attrs().Name != d.Name {
		if _, err := inside.LinkByName(d.Name); err == nil {
			return occupied(d.Netns, d.Name)
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
	if err := h.hold(d, at.was); err != nil {
		return err
	}
	have, err := inside.LinkByName(d.Name)
	if err != nil {
		return err
	}
	if mtu := cmp.Or(d.MTU, at.was.MTU); mtu != 0 && have.Attrs().MTU != mtu {
		if err := inside.LinkSetMTU(have, mtu); err != nil {
			return fmt.Errorf("set mtu %d: %w: ask for one that the device can have (`ip -d link` says which)", mtu, err)
		}
	}
	if mac := cmp.Or(d.MAC, at.was.MAC); mac != "" && have.Attrs().HardwareAddr.String() != mac {
		if err := setMAC(inside, have, mac); err != nil {
			return err
		}
	}
	if err := h.setLinkSettings(d); err != nil {
		return err
	}
	return inside.LinkSetUp(have)
}

// place moves the device to where it is wanted and gives it its name there.
func (h *Host) place(at *whereabouts, d plan.Device) error {
	if at.netns == d.Netns {
		return rename(at.handle, at.link, d.Name)
	}
	err := h.move(at.netns, d.Netns, at.link, d.Name)
	if errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: a device of this kind (%s) cannot leave its namespace; macvlan or ipvlan on it may serve instead", err, at.link.Type())
	}
	return err
}

// rename gives a link another name, which the kernel allows while it is down.
func rename(handle *netlink.Handle, link netlink.Link, name string) error {
	if link.Attrs().Name == name {
		return nil
	}
	if err := handle.LinkSetDown(link); err != nil {
		return err
	}
	return handle.LinkSetName(link, name)
}

// move brings a link from one namespace to another, under a name of its own or
// a pattern such as dev%d. The kernel takes it down.
func (h *Host) move(from, to string, link netlink.Link, name string) error {
	source, err := h.open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := h.open(to)
	if err != nil {
		return err
	}
	defer target.Close()
	return source.Do(func() error {
		_, err := moveRequest(link.Attrs().Index, int(target.File().Fd()), name).Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}

// moveRequest is `ip link set … netns … name …`.
func moveRequest(index, netns int, name string) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(netns))))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	return req
}

// delDevice gives the device back to the host.
func (h *Host) delDevice(d plan.Device) error {
	at, err := h.findDevice(d)
	if err == nil && at != nil {
		err = h.giveBack(at)
	}
	if err != nil {
		return err
	}
	return h.letGo(d)
}

// giveBack brings the device to the host and makes it what it was. When the
// host has another link of its name by now, the device keeps its mark and the
// name devN, and it is an error until that name is free.
func (h *Host) giveBack(at *whereabouts) error {
	host, err := h.at("")
	if err != nil {
		return err
	}
	w, link := at.was, at.link
	if at.netns != "" {
		name := freeName(host, w.Name)
		if err := h.move(at.netns, "", link, name); err != nil {
			return fmt.Errorf("bring it back: %w", err)
		}
		if link, err = host.LinkByName(name); err != nil {
			return fmt.Errorf("%s did not come back: %w", w.Name, err)
		}
		if err := w.remark(host, link); err != nil {
			return err
		}
	}
	renamed := rename(host, link, w.Name)
	if errors.Is(renamed, unix.EEXIST) {
		renamed = fmt.Errorf("it is back as %s, because another link is called %s now: rename that one", link.Attrs().Name, w.Name)
	}
	if err := errors.Join(w.restore(host, link), renamed); err != nil {
		return err
	}
	return host.LinkSetAlias(link, w.Alias)
}

// hold remembers where the device is, and keeps that namespace.
func (h *Host) hold(d plan.Device, was wasDevice) error {
	ns, err := OpenNetns(d.Netns)
	if err != nil {
		return err
	}
	err = h.letGo(d)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.devices[d.Key()] = placed{ns, was}
	return err
}

// letGo forgets where the device was.
func (h *Host) letGo(d plan.Device) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, ok := h.devices[d.Key()]
	delete(h.devices, d.Key())
	if !ok {
		return nil
	}
	if handle, open := h.handles[p.ns.Path()]; open {
		handle.Close()
		delete(h.handles, p.ns.Path())
	}
	return p.ns.Close()
}

// readDevice returns the device as it is in a sandbox, nil when it is in none.
func (h *Host) readDevice(want plan.Device) (plan.Object, error) {
	at, err := h.findDevice(want)
	if err != nil || at == nil || at.netns == "" {
		return nil, err
	}
	a := at.link.Attrs()
	found := want
	found.Netns, found.Name, found.Down = at.netns, a.Name, !isUp(at.link)
	if want.MTU != 0 {
		found.MTU = a.MTU
	}
	if want.MAC != "" {
		found.MAC = a.HardwareAddr.String()
	}
	if at.netns != want.Netns {
		return found, nil
	}
	if found.IPv6, err = h.readIPv6(found, want.IPv6); err != nil {
		return nil, err
	}
	return found, h.hold(want, at.was)
}

// leftoverDevices returns those of the links, which are the host's, that are
// still marked as handed over.
func leftoverDevices(links []netlink.Link) plan.Plan {
	var found plan.Plan
	for _, l := range links {
		if w, ok := was(l); ok {
			found = append(found, plan.Device{Device: w.Device, Name: l.Attrs().Name})
		}
	}
	return found
}
