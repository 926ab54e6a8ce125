package kernel

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// setAddress adds the address, and drops the same one with another prefix
// length: IPv6 first, because the kernel takes only one, IPv4 after, because
// a link's routes go with its last address.
func (h *Host) setAddress(a plan.Address) error {
	if a.Prefix.Addr().Is4() {
		return errors.Join(h.onAddress(a, (*netlink.Handle).AddrReplace), h.dropWidths(a))
	}
	if err := h.dropWidths(a); err != nil {
		return err
	}
	if err := h.onAddress(a, (*netlink.Handle).AddrReplace); err != nil {
		return err
	}
	return h.awaitLocal(a)
}

// dropWidths removes the address with any other prefix length.
func (h *Host) dropWidths(a plan.Address) error {
	have, err := h.addresses(a.Netns, a.Link)
	for _, p := range have {
		if p.Addr() == a.Prefix.Addr() && p != a.Prefix {
			err = errors.Join(err, h.delAddress(plan.Address{Netns: a.Netns, Link: a.Link, Prefix: p}))
		}
	}
	return err
}

// addresses returns those of a link, but for those of IPv6 that the kernel
// makes and drops by itself to keep hosts from being recognised (RFC 8981).
func (h *Host) addresses(netns, name string) ([]netip.Prefix, error) {
	handle, link, err := h.link(netns, name)
	if err != nil {
		return nil, err
	}
	list, err := retry(func() ([]netlink.Addr, error) { return handle.AddrList(link, unix.AF_UNSPEC) })
	var prefixes []netip.Prefix
	for _, a := range list {
		p := toPrefix(a.IPNet.IP, a.Mask)
		if p.Addr().Is4() || a.Flags&unix.IFA_F_TEMPORARY == 0 {
			prefixes = append(prefixes, p)
		}
	}
	return prefixes, err
}

// delAddress removes an address and nothing else: with the first IPv4 address
// of a subnet the kernel drops the others, unless it is told to promote one.
func (h *Host) delAddress(a plan.Address) error {
	have, err := h.addresses(a.Netns, a.Link)
	if err != nil {
		return err
	}
	promote := plan.Sysctl{Netns: a.Netns, Name: "net.ipv4.conf." + a.Link + ".promote_secondaries", Value: "1"}
	before := promote
	if slices.ContainsFunc(have, func(p netip.Prefix) bool {
		return p != a.Prefix && p.Masked() == a.Prefix.Masked() && p.Addr().Is4()
	}) {
		if before.Value, err = h.ReadSysctl(promote); err != nil {
			return err
		}
		if err := h.WriteSysctl(promote); err != nil {
			return err
		}
	}
	err = h.onAddress(a, (*netlink.Handle).AddrDel)
	if before != promote {
		err = errors.Join(err, h.WriteSysctl(before))
	}
	return err
}

// awaitLocal waits until the kernel answers on an IPv6 address of a link that
// is up. It does so from a work queue, even without duplicate address
// detection; a socket that connects before that gets a route out of the link
// and keeps it.
func (h *Host) awaitLocal(a plan.Address) error {
	const atOnce, often, patience = 20, time.Millisecond, 2 * time.Second
	handle, link, err := h.link(a.Netns, a.Link)
	if err != nil || link.Attrs().RawFlags&unix.IFF_UP == 0 || a.Prefix.Addr().IsLinkLocalUnicast() {
		return err
	}
	deadline := time.Now().Add(patience)
	for try := 0; time.Now().Before(deadline); try++ {
		routes, err := handle.RouteGet(a.Prefix.Addr().AsSlice())
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if try >= atOnce { // the queue is usually through before a sleep is
			time.Sleep(often)
		}
	}
	return nil // policy routing may hide the route; the address is set all the same
}

// onAddress changes an address. Branches of a parent that share its hardware
// address cannot have one IP address twice.
func (h *Host) onAddress(a plan.Address, do func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	handle, link, err := h.link(a.Netns, a.Link)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: ipNet(a.Prefix)}
	if a.Prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return untilFree(func() error { return do(handle, link, addr) })
}
