package kernel

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var addressKind = kind[plan.Address]{
	set: (*Host).setAddress, del: (*Host).delAddress, read: (*Host).readAddress,
	concerned: func(m *matcher, a plan.Address) bool { return len(m.addresses) > 0 && m.lost(a) },
}

// setAddress adds the address and removes the same address with other prefix
// lengths. For IPv6 it removes first, because the kernel accepts an address only
// once per link. For IPv4 it removes last, because the kernel drops a link's routes
// with the link's last address.
func (h *Host) setAddress(a plan.Address) error {
	if a.Prefix.Addr().Is4() {
		return errors.Join(h.onAddress(a, (*netlink.Handle).AddrReplace), h.removeOtherLengths(a))
	}
	if err := h.removeOtherLengths(a); err != nil {
		return err
	}
	if err := h.onAddress(a, (*netlink.Handle).AddrReplace); err != nil {
		return err
	}
	return h.awaitLocal(a)
}

// removeOtherLengths removes the address with any other prefix length.
func (h *Host) removeOtherLengths(a plan.Address) error {
	have, err := h.addresses(a.Netns, a.Link)
	for _, p := range have {
		if p.Addr() == a.Prefix.Addr() && p != a.Prefix {
			err = errors.Join(err, h.delAddress(plan.Address{Netns: a.Netns, Link: a.Link, Prefix: p}))
		}
	}
	return err
}

// addresses returns the addresses of a link, without temporary IPv6 addresses: the
// kernel adds and removes those itself (RFC 8981).
func (h *Host) addresses(netns, name string) ([]netip.Prefix, error) {
	handle, link, err := h.link(netns, name)
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

// delAddress removes one address only. Without promote_secondaries the kernel would
// remove the other addresses of an IPv4 subnet together with the subnet's first
// one.
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

// awaitLocal waits until the kernel delivers packets for an IPv6 address locally,
// if the link is up. The kernel adds the local route from a work queue, even
// without duplicate address detection. A socket that connects earlier gets a route
// out of the link and keeps it.
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
		if try >= atOnce { // the queue is usually done before a sleep ends
			time.Sleep(often)
		}
	}
	return nil // policy routing may hide the route although the address is set
}

// onAddress adds or removes an address. It retries while the address is in use,
// because sub-links that share their parent's hardware address cannot have the same
// IP address twice.
func (h *Host) onAddress(a plan.Address, do func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	handle, link, err := h.link(a.Netns, a.Link)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: nlutil.IPNet(a.Prefix)}
	if a.Prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return untilFree(func() error { return do(handle, link, addr) })
}

// readAddress returns the address with the prefix length that it has.
func (h *Host) readAddress(want plan.Address) (plan.Object, error) {
	have, err := h.addresses(want.Netns, want.Link)
	var found plan.Object
	for _, p := range have {
		if p == want.Prefix {
			return want, nil
		}
		if p.Addr() == want.Prefix.Addr() {
			found = plan.Address{Netns: want.Netns, Link: want.Link, Prefix: p}
		}
	}
	return found, err
}
