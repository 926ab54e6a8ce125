package rtnl

import (
	"fmt"
	"net"
	"net/netip"

	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses returns the addresses of a link, without temporary IPv6 addresses: the
// kernel adds and removes those itself (RFC 8981).
func (h *Reader) Addresses(netns, name string) ([]netip.Prefix, error) {
	handle, link, err := h.handles.Link(netns, name)
	if err != nil {
		return nil, err
	}
	list, err := nlutil.Retry(func() ([]netlink.Addr, error) { return handle.AddrList(link, unix.AF_UNSPEC) })
	var prefixes []netip.Prefix
	for _, a := range list {
		p := nlutil.Prefix(a.IPNet.IP, a.Mask)
		if p.Addr().Is4() || a.Flags&unix.IFA_F_TEMPORARY == 0 {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes, err
}

// LinkAddresses are the addresses of a link of the host's namespace.
type LinkAddresses struct {
	// Hardware is the link's hardware address, and Permanent that of its device. Each can be empty.
	Hardware, Permanent net.HardwareAddr
	Addresses           []netip.Addr
}

// AllAddresses returns the addresses of all links of the host's namespace.
func (h *Reader) AllAddresses() ([]LinkAddresses, error) {
	handle, err := h.handles.At("")
	if err != nil {
		return nil, err
	}
	links, err := nlutil.Retry(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	list, err := nlutil.Retry(func() ([]netlink.Addr, error) { return handle.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	of := map[int][]netip.Addr{}
	for _, a := range list {
		of[a.LinkIndex] = append(of[a.LinkIndex], nlutil.Prefix(a.IP, a.Mask).Addr())
	}
	var all []LinkAddresses
	for _, l := range links {
		a := l.Attrs()
		all = append(all, LinkAddresses{Hardware: a.HardwareAddr, Permanent: a.PermHWAddr, Addresses: of[a.Index]})
	}
	return all, nil
}

// LocalAddrs returns the addresses of the host's namespace.
func (h *Reader) LocalAddrs() ([]netip.Addr, error) {
	handle, err := h.handles.At("")
	if err != nil {
		return nil, err
	}
	list, err := nlutil.Retry(func() ([]netlink.Addr, error) { return handle.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var addrs []netip.Addr
	for _, a := range list {
		addrs = append(addrs, nlutil.Prefix(a.IPNet.IP, a.Mask).Addr())
	}
	return addrs, nil
}
