package link

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

// SetAddress adds the address and removes the same address with other prefix
// lengths. For IPv6 it removes first, because the kernel accepts an address only
// once per link. For IPv4 it removes last, because the kernel drops a link's routes
// with the link's last address.
func (h *Handle) SetAddress(a plan.Address) error {
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
func (h *Handle) removeOtherLengths(a plan.Address) error {
	have, err := h.Addresses(a.Netns, a.Link)
	for _, p := range have {
		if p.Addr() == a.Prefix.Addr() && p != a.Prefix {
			err = errors.Join(err, h.DelAddress(plan.Address{Netns: a.Netns, Link: a.Link, Prefix: p}))
		}
	}
	return err
}

// DelAddress removes one address only. Without promote_secondaries the kernel would
// remove the other addresses of an IPv4 subnet together with the subnet's first
// one.
func (h *Handle) DelAddress(a plan.Address) error {
	have, err := h.Addresses(a.Netns, a.Link)
	if err != nil {
		return err
	}
	promote := plan.Sysctl{Netns: a.Netns, Name: plan.LinkSetting("ipv4", a.Link, "promote_secondaries"), Value: "1"}
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
func (h *Handle) awaitLocal(a plan.Address) error {
	const atOnce, often, patience = 20, time.Millisecond, 2 * time.Second
	handle, link, err := h.Link(a.Netns, a.Link)
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
func (h *Handle) onAddress(a plan.Address, do func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	handle, link, err := h.Link(a.Netns, a.Link)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: nlutil.IPNet(a.Prefix)}
	if a.Prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return untilFree(func() error { return do(handle, link, addr) })
}

// ReadAddress returns the address with the prefix length that it has.
func (h *Handle) ReadAddress(want plan.Address) (plan.Object, error) {
	have, err := h.Addresses(want.Netns, want.Link)
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
