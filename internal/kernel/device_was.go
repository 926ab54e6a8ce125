package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// wasDevice is what a device was before it was handed over. It is in the record,
// from which the device is restored, and in the device's alias, by which the
// device is found.
type wasDevice struct {
	// Device is what it was asked for by (plan.Device).
	Device string `json:"device"`
	Name   string `json:"name"`
	MTU    int    `json:"mtu"`
	// MAC is empty for what is no Ethernet: an address that cannot be changed.
	MAC string `json:"mac,omitempty"`
	Up  bool   `json:"up,omitempty"`
	// Addresses are the host's on the device, other than those that come by
	// themselves: link-local ones, and those with a lifetime.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	Alias     string         `json:"alias,omitempty"`
}

// maxAlias is IFALIASZ less the final NUL.
const maxAlias = 255

// mark writes the alias. What does not fit is an error: it could not be put
// back.
func (w wasDevice) mark() (string, error) {
	text, err := json.Marshal(w)
	if err != nil {
		return "", err
	}
	alias := plan.DeviceMark + string(text)
	if len(alias) > maxAlias {
		return "", fmt.Errorf("what the host has on it (%d addresses, alias %q) cannot be remembered, as it takes %d bytes of %d: remove what shall not come back",
			len(w.Addresses), w.Alias, len(alias), maxAlias)
	}
	return alias, nil
}

// remark writes the alias anew: the workload may have changed it.
func (w wasDevice) remark(handle *netlink.Handle, link netlink.Link) error {
	mark, err := w.mark()
	if err == nil {
		err = handle.LinkSetAlias(link, mark)
	}
	return wrapped("mark it", err)
}

// was reads what a device was from its alias; false when it is not handed
// over.
func was(link netlink.Link) (w wasDevice, ok bool) {
	text, marked := strings.CutPrefix(link.Attrs().Alias, plan.DeviceMark)
	if !marked || json.Unmarshal([]byte(text), &w) != nil {
		return w, false
	}
	return w, w.Device != "" && w.Name != ""
}

// describeDevice tells what a device of the host's is now.
func describeDevice(handle *netlink.Handle, asked string, link netlink.Link) (wasDevice, error) {
	a := link.Attrs()
	w := wasDevice{Device: asked, Name: a.Name, MTU: a.MTU, Up: isUp(link), Alias: a.Alias}
	if a.EncapType == "ether" {
		w.MAC = a.HardwareAddr.String()
	}
	list, err := retry(func() ([]netlink.Addr, error) { return handle.AddrList(link, unix.AF_UNSPEC) })
	for _, addr := range list {
		p := toPrefix(addr.IP, addr.Mask)
		if addr.Flags&unix.IFA_F_PERMANENT != 0 && !p.Addr().IsLinkLocalUnicast() {
			w.Addresses = append(w.Addresses, p)
		}
	}
	return w, err
}

// restore makes the device, which is on the host, what it was, all but its
// name; it goes on over errors.
func (w wasDevice) restore(handle *netlink.Handle, link netlink.Link) error {
	var errs []error
	if w.MTU != 0 && link.Attrs().MTU != w.MTU {
		errs = append(errs, wrapped("set mtu", handle.LinkSetMTU(link, w.MTU)))
	}
	if w.MAC != "" && link.Attrs().HardwareAddr.String() != w.MAC {
		errs = append(errs, setMAC(handle, link, w.MAC))
	}
	if w.Up {
		errs = append(errs, wrapped("bring it up", handle.LinkSetUp(link)))
	} else {
		errs = append(errs, wrapped("take it down", handle.LinkSetDown(link)))
	}
	for _, p := range w.Addresses {
		errs = append(errs, wrapped("add "+p.String(), handle.AddrReplace(link, &netlink.Addr{IPNet: ipNet(p)})))
	}
	return errors.Join(errs...)
}

// setMAC gives a device another hardware address. Most cards take none while
// they are up.
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
