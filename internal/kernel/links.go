package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Links returns the links that the questions are about (model.Network.Asks), by
// the question. What the host has not is left out.
func (h *Host) Links(asked []string) (map[string]plan.HostLink, error) {
	handle, err := h.at("")
	if err != nil {
		return nil, err
	}
	found := map[string]plan.HostLink{}
	for _, question := range asked {
		l, err := h.answer(handle, question)
		if absent(err) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for %s: %w", question, err)
		}
		found[question] = l
	}
	return found, nil
}

// answer looks for a link by its name, its PCI address, the host's address on
// it, or the address of another host.
func (h *Host) answer(handle *netlink.Handle, question string) (plan.HostLink, error) {
	if addr, err := netip.ParseAddr(question); err == nil {
		return h.linkTo(handle, addr)
	}
	name := question
	if plan.PCIAddress(question) {
		var err error
		if name, err = pciLink(question); err != nil {
			return plan.HostLink{}, err
		}
	}
	link, err := handle.LinkByName(name)
	if err != nil {
		return plan.HostLink{}, err
	}
	return h.describe(link)
}

// linkTo returns the link that holds the address, or leads there.
func (h *Host) linkTo(handle *netlink.Handle, addr netip.Addr) (plan.HostLink, error) {
	routes, err := handle.RouteGet(addr.AsSlice())
	if err != nil {
		return plan.HostLink{}, err
	}
	if len(routes) == 0 {
		return plan.HostLink{}, unix.ENETUNREACH
	}
	if routes[0].Type == unix.RTN_LOCAL {
		return h.holder(handle, addr)
	}
	link, err := handle.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return plan.HostLink{}, err
	}
	l, err := h.describe(link)
	if mtu := routes[0].MTU; mtu != 0 && mtu < l.MTU {
		l.MTU = mtu
	}
	if src, ok := netip.AddrFromSlice(routes[0].Src); ok {
		l.Source = src.Unmap()
	}
	return l, err
}

// holder returns the link that has the address.
func (h *Host) holder(handle *netlink.Handle, addr netip.Addr) (plan.HostLink, error) {
	list, err := retry(func() ([]netlink.Addr, error) { return handle.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return plan.HostLink{}, err
	}
	for _, a := range list {
		if toPrefix(a.IP, a.Mask).Addr() != addr {
			continue
		}
		link, err := handle.LinkByIndex(a.LinkIndex)
		if err != nil {
			return plan.HostLink{}, err
		}
		return h.describe(link)
	}
	return plan.HostLink{}, os.ErrNotExist
}

// describe reads what plans need of a link.
func (h *Host) describe(link netlink.Link) (plan.HostLink, error) {
	a := link.Attrs()
	l := plan.HostLink{Name: a.Name, Kind: link.Type(), Encap: a.EncapType, Up: isUp(link), MTU: a.MTU, MAC: a.HardwareAddr.String()}
	if l.Kind == "device" {
		l.Kind = ""
	}
	handle, err := h.at("")
	if err != nil {
		return l, err
	}
	if master, err := handle.LinkByIndex(a.MasterIndex); a.MasterIndex != 0 && err == nil && master.Type() != "vrf" {
		l.Master = master.Attrs().Name
	}
	if l.Addresses, err = h.addresses("", a.Name); err != nil {
		return l, err
	}
	_, wired := os.Lstat(filepath.Join("/sys/class/net", a.Name, "phy80211"))
	l.Wireless = wired == nil
	return l, nil
}

// pciLink returns the name of the network device with the PCI address. It may
// lie below that in the tree of devices, as those of virtio do.
func pciLink(address string) (string, error) {
	const class = "/sys/class/net"
	entries, err := os.ReadDir(class)
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		// One that goes meanwhile is none.
		path, err := filepath.EvalSymlinks(filepath.Join(class, e.Name()))
		if err == nil && strings.EqualFold(pciParent(path), address) {
			names = append(names, e.Name())
		}
	}
	switch len(names) {
	case 0:
		return "", os.ErrNotExist
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("PCI address %s has the network devices %s: name one of them", address, strings.Join(names, ", "))
}

// pciParent returns the PCI address that a path in the tree of devices lies
// below.
func pciParent(path string) string {
	parts := strings.Split(path, "/")
	i := len(parts) - 1
	for i > 0 && !plan.PCIAddress(parts[i]) {
		i--
	}
	return parts[i]
}
