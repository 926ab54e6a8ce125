package virtual

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Link is a link that can have virtual addresses.
type Link struct {
	Index int
	Name  string
	MAC   net.HardwareAddr
}

// link is a link as its messages describe it.
type link struct {
	Link
	ether, up, carrier bool
	// addresses are those that are not virtual ones.
	addresses []netip.Prefix
}

// ErrUnknownLinks is the error of LinkOf before the kernel has listed the links.
var ErrUnknownLinks = errors.New("the links of the host are not known yet")

// OwnError is the error if the host has an address by itself, not from the cluster.
type OwnError struct {
	Link   string
	Prefix netip.Prefix
}

// Error names the link and the command that deletes the address.
func (e *OwnError) Error() string {
	return fmt.Sprintf("link %s has %s by itself: delete it with `ip address del %s dev %s`, or remove the virtual "+
		"address", e.Link, e.Prefix, e.Prefix, e.Link)
}

// LinkOf returns the link for an address with the length of its subnet: the link with the
// name or, if the name is empty, the one with an address in the subnet. The error says why
// no link can have the address now. It is an *OwnError if the host has the address anyway.
func (h *Handle) LinkOf(p netip.Prefix, name string) (Link, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.links) == 0 {
		return Link{}, ErrUnknownLinks
	}
	if h.index == nil {
		h.index = newIndex(h.links)
	}
	if own, has := h.index.owners[p.Addr()]; has {
		return Link{}, &OwnError{own.link.Name, own.at}
	}
	found := h.index.find(p, name)
	switch {
	case found == nil && name != "":
		return Link{}, fmt.Errorf("there is no link %s", name)
	case found == nil:
		return Link{}, fmt.Errorf("no link has an address in the subnet %s", p.Masked())
	case !found.ether:
		return Link{}, fmt.Errorf("link %s is not an Ethernet link", found.Name)
	case !found.up:
		return found.Link, fmt.Errorf("link %s is down", found.Name)
	case !found.carrier:
		return found.Link, fmt.Errorf("link %s has no carrier", found.Name)
	}
	return found.Link, nil
}

// better prefers links that work, and then those that are older.
func (l *link) better(other *link) bool {
	if working := l.up && l.carrier; working != (other.up && other.carrier) {
		return working
	}
	return l.Index < other.Index
}

// Watch keeps the links known until ctx ends, and calls changed when one that matters has
// changed.
func (h *Handle) Watch(ctx context.Context, changed func()) error {
	for ctx.Err() == nil {
		if err := h.watch(ctx, changed); err != nil {
			return fmt.Errorf("watch links: %w", err)
		}
	}
	return nil
}

// watch lists the links, and follows their messages until messages are lost.
func (h *Handle) watch(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := func(error) { cancel() }
	ns := vnetns.NsHandle(h.ns.File().Fd())
	links, addresses := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64)
	if err := netlink.LinkSubscribeWithOptions(links, ctx.Done(), netlink.LinkSubscribeOptions{Namespace: &ns,
		ErrorCallback: lost}); err != nil {
		return err
	}
	defer drain(links)
	if err := netlink.AddrSubscribeWithOptions(addresses, ctx.Done(), netlink.AddrSubscribeOptions{Namespace: &ns,
		ErrorCallback: lost}); err != nil {
		return err
	}
	defer drain(addresses)
	if err := h.list(); err != nil {
		return err
	}
	changed()
	for {
		var matters bool
		select {
		case u, open := <-links:
			if !open {
				return nil
			}
			matters = h.noteLink(u)
		case u, open := <-addresses:
			if !open {
				return nil
			}
			matters = h.noteAddress(u)
		case <-ctx.Done():
			return nil
		}
		if matters {
			changed()
		}
	}
}

// drain reads what a subscription still sends, so that it ends.
func drain[T any](updates chan T) {
	go func() {
		for range updates {
		}
	}()
}

// list replaces the table of links by what the kernel has.
func (h *Handle) list() error {
	links, err := nlutil.Retry(h.rtnl.LinkList)
	if err != nil {
		return err
	}
	addresses, err := nlutil.Retry(func() ([]netlink.Addr, error) { return h.rtnl.AddrList(nil, unix.AF_UNSPEC) })
	if err != nil {
		return err
	}
	all := map[int]*link{}
	for _, l := range links {
		all[l.Attrs().Index] = newLink(l.Attrs())
	}
	for _, a := range addresses {
		if l := all[a.LinkIndex]; l != nil {
			l.note(nlutil.Prefix(a.IP, a.Mask), true, a.Flags)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.links, h.index = all, nil
	return nil
}

// newLink returns a link without addresses.
func newLink(attrs *netlink.LinkAttrs) *link {
	return &link{Link: Link{attrs.Index, attrs.Name, attrs.HardwareAddr},
		ether: attrs.EncapType == "ether" && len(attrs.HardwareAddr) == 6 && attrs.RawFlags&unix.IFF_NOARP == 0,
		up:    attrs.RawFlags&unix.IFF_UP != 0, carrier: attrs.RawFlags&unix.IFF_LOWER_UP != 0}
}

// note takes an address that the link has got or lost, and reports whether that matters.
func (l *link) note(p netip.Prefix, has bool, flags int) bool {
	if has && nlutil.IsLimited(p, flags) {
		return false
	}
	had := slices.Contains(l.addresses, p)
	l.addresses = slices.DeleteFunc(slices.Clone(l.addresses), func(a netip.Prefix) bool { return a == p })
	if has {
		l.addresses = append(l.addresses, p)
	}
	return had != has
}

// noteLink takes a message about a link, and reports whether it has changed.
func (h *Handle) noteLink(u netlink.LinkUpdate) bool {
	if u.Family != unix.AF_UNSPEC { // a bridge's message about its port
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	index := int(u.Index)
	was := h.links[index]
	if u.Header.Type == unix.RTM_DELLINK {
		delete(h.links, index)
		return h.outdated(was != nil)
	}
	now := newLink(u.Link.Attrs())
	h.links[index] = now
	if was == nil {
		return h.outdated(true)
	}
	now.addresses = was.addresses
	return h.outdated(was.Name != now.Name || !bytes.Equal(was.MAC, now.MAC) || was.ether != now.ether ||
		was.up != now.up || was.carrier != now.carrier)
}

// noteAddress takes a message about an address, and reports whether it matters.
func (h *Handle) noteAddress(u netlink.AddrUpdate) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.links[u.LinkIndex]
	if l == nil {
		if !u.NewAddr {
			return false
		}
		l = &link{Link: Link{Index: u.LinkIndex}} // the link's own message comes later
		h.links[u.LinkIndex] = l
	}
	return h.outdated(l.note(nlutil.Prefix(u.LinkAddress.IP, u.LinkAddress.Mask), u.NewAddr, u.Flags))
}

// outdated drops the index if the links have changed, and returns whether they have. The caller has locked mu.
func (h *Handle) outdated(changed bool) bool {
	if changed {
		h.index = nil
	}
	return changed
}
