package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// savedDevice is the state of a device before it was moved into a sandbox. It is
// stored in Fairlead's record, from which the device is restored, and in the
// device's alias, by which the device is found.
type savedDevice struct {
	// Device is the name by which the device was requested (plan.Device).
	Device string `json:"device"`
	Name   string `json:"name"`
	MTU    int    `json:"mtu"`
	// MAC is empty if the link is not Ethernet: such an address cannot be changed.
	MAC string `json:"mac,omitempty"`
	Up  bool   `json:"up,omitempty"`
	// Addresses are the host's addresses on the device, without link-local
	// addresses and those with a lifetime.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Alias     string         `json:"alias,omitempty"`
}

// maxAlias is IFALIASZ without the final NUL, in bytes.
const maxAlias = 255

// mark returns the alias that marks the device. It is an error if the state does
// not fit, because it could not be restored.
func (w savedDevice) mark() (string, error) {
	text, err := json.Marshal(w)
	if err != nil {
		return "", err
	}
	alias := plan.DeviceMark + string(text)
	if len(alias) > maxAlias {
		return "", fmt.Errorf("the device's state (%d addresses, alias %q) cannot be saved: "+
			"it takes %d bytes of at most %d: remove addresses or the alias first",
			len(w.Addresses), w.Alias, len(alias), maxAlias)
	}
	return alias, nil
}

// writeMark sets the alias again, because the workload may have changed it.
func (w savedDevice) writeMark(handle *netlink.Handle, link netlink.Link) error {
	mark, err := w.mark()
	if err == nil {
		err = handle.LinkSetAlias(link, mark)
	}
	return wrapped("mark the device", err)
}

// parseMark returns the state in a link's alias, and false if the link is not
// marked.
func parseMark(link netlink.Link) (w savedDevice, ok bool) {
	text, marked := strings.CutPrefix(link.Attrs().Alias, plan.DeviceMark)
	if !marked || json.Unmarshal([]byte(text), &w) != nil {
		return w, false
	}
	return w, w.Device != "" && w.Name != ""
}

// describeDevice returns the current state of a device on the host.
func describeDevice(handle *netlink.Handle, asked string, link netlink.Link) (savedDevice, error) {
	a := link.Attrs()
	w := savedDevice{Device: asked, Name: a.Name, MTU: a.MTU, Up: rtnl.IsUp(link), Alias: a.Alias}
	if a.EncapType == "ether" {
		w.MAC = a.HardwareAddr.String()
	}
	list, err := nlutil.Retry(func() ([]netlink.Addr, error) { return handle.AddrList(link, unix.AF_UNSPEC) })
	for _, addr := range list {
		p := nlutil.Prefix(addr.IP, addr.Mask)
		if addr.Flags&unix.IFA_F_PERMANENT != 0 && !p.Addr().IsLinkLocalUnicast() {
			w.Addresses = append(w.Addresses, p)
		}
	}
	return w, err
}

// restore restores the state of a device that is back on the host, except its name.
// It continues after errors and returns all of them.
func (w savedDevice) restore(handle *netlink.Handle, link netlink.Link) error {
	var errs []error
	if w.MTU != 0 && link.Attrs().MTU != w.MTU {
		errs = append(errs, wrapped("set mtu", handle.LinkSetMTU(link, w.MTU)))
	}
	if w.MAC != "" && link.Attrs().HardwareAddr.String() != w.MAC {
		errs = append(errs, setMAC(handle, link, w.MAC))
	}
	if w.Up {
		errs = append(errs, wrapped("set the link up", handle.LinkSetUp(link)))
	} else {
		errs = append(errs, wrapped("set the link down", handle.LinkSetDown(link)))
	}
	for _, p := range w.Addresses {
		errs = append(errs, wrapped("add "+p.String(), handle.AddrReplace(link, &netlink.Addr{IPNet: nlutil.IPNet(p)})))
	}
	return errors.Join(errs...)
}

// setMAC changes a device's hardware address. If the driver refuses that while the
// link is up, it takes the link down first.
func setMAC(handle *netlink.Handle, link netlink.Link, mac string) error {
	addr, err := net.ParseMAC(mac)
	if err == nil {
		err = handle.LinkSetHardwareAddr(link, addr)
	}
	if errors.Is(err, unix.EBUSY) {
		err = errors.Join(handle.LinkSetDown(link), handle.LinkSetHardwareAddr(link, addr))
	}
	return wrapped("set hardware address", err)
}

func wrapped(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}
