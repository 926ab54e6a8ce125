package rtnl

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Links returns the host's links that the queries refer to (model.Network.Asks), by
// query. Queries without a matching link are left out.
func (h *Reader) Links(queries []string) (map[string]plan.HostLink, error) {
	handle, err := h.handles.At("")
	if err != nil {
		return nil, err
	}
	found := map[string]plan.HostLink{}
	for _, query := range queries {
		l, err := h.findLink(handle, query)
		if nlutil.Absent(err) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find link %s: %w", query, err)
		}
		found[query] = l
	}
	return found, nil
}

// findLink finds a link by its name, its PCI address, the host's address on it, or
// the address of another host.
func (h *Reader) findLink(handle *netlink.Handle, query string) (plan.HostLink, error) {
	if addr, err := netip.ParseAddr(query); err == nil {
		return h.linkTo(handle, addr)
	}
	name := query
	if plan.PCIAddress(query) {
		var err error
		if name, err = PCILink(query); err != nil {
			return plan.HostLink{}, err
		}
	}
	link, err := handle.LinkByName(name)
	if err != nil {
		return plan.HostLink{}, err
	}
	return h.describe(link)
}

// linkTo returns the link that has the address, or the link of the route to it.
func (h *Reader) linkTo(handle *netlink.Handle, addr netip.Addr) (plan.HostLink, error) {
	routes, err := handle.RouteGet(addr.AsSlice())
	if err != nil {
		return plan.HostLink{}, err
	}
	if len(routes) == 0 {
		return plan.HostLink{}, unix.ENETUNREACH
	}
	if routes[0].Type == unix.RTN_LOCAL {
		return h.linkWith(handle, addr)
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

// linkWith returns the link that has the address.
func (h *Reader) linkWith(handle *netlink.Handle, addr netip.Addr) (plan.HostLink, error) {
	list, err := nlutil.Retry(func() ([]netlink.Addr, error) { return handle.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return plan.HostLink{}, err
	}
	for _, a := range list {
		if nlutil.Prefix(a.IP, a.Mask).Addr() != addr {
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

// MTU returns the smallest MTU of the links that have these addresses, in bytes. It is 0 if one of the
// addresses is on no link.
func (h *Reader) MTU(addresses []netip.Addr) (int, error) {
	handle, err := h.handles.At("")
	if err != nil {
		return 0, err
	}
	least := 0
	for _, a := range addresses {
		l, err := h.linkWith(handle, a)
		if errors.Is(err, os.ErrNotExist) || nlutil.Absent(err) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("find the link with address %s: %w", a, err)
		}
		if least == 0 || l.MTU < least {
			least = l.MTU
		}
	}
	return least, nil
}

// describe returns the properties of a link that plans need.
func (h *Reader) describe(link netlink.Link) (plan.HostLink, error) {
	a := link.Attrs()
	l := plan.HostLink{Name: a.Name, Kind: link.Type(), Encap: a.EncapType, Up: IsUp(link), MTU: a.MTU,
		MAC: a.HardwareAddr.String(), ParentOutside: a.ParentIndex != 0 && a.NetNsID >= 0}
	if l.Kind == "device" {
		l.Kind = ""
	}
	handle, err := h.handles.At("")
	if err != nil {
		return l, err
	}
	if master, err := handle.LinkByIndex(a.MasterIndex); a.MasterIndex != 0 && err == nil && master.Type() != "vrf" {
		l.Master = master.Attrs().Name
	}
	if l.Addresses, err = h.Addresses("", a.Name); err != nil {
		return l, err
	}
	_, wired := os.Lstat(filepath.Join("/sys/class/net", a.Name, "phy80211"))
	l.Wireless = wired == nil
	return l, nil
}

// PCILink returns the name of the network device with the PCI address. The network
// device may be a descendant of the PCI device, as for virtio. Returns
// os.ErrNotExist if there is none.
func PCILink(address string) (string, error) {
	const class = "/sys/class/net"
	entries, err := os.ReadDir(class)
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		// A device that was removed in the meantime does not count.
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
	return "", fmt.Errorf("PCI address %s has the network devices %s: name one of them", address,
		strings.Join(names, ", "))
}

// pciParent returns the last PCI address in a sysfs path, or "" if there is none.
func pciParent(path string) string {
	parts := strings.Split(path, "/")
	i := len(parts) - 1
	for i > 0 && !plan.PCIAddress(parts[i]) {
		i--
	}
	return parts[i]
}
