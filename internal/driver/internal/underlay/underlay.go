// Package underlay finds out what carries an overlay: the host's addresses and
// links that are used to reach the other hosts, the largest packet that fits, and
// the known addresses of sandboxes on other hosts. It plans nothing.
package underlay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Underlay is what carries an overlay, as seen from this host.
type Underlay struct {
	// Local is the source address of this host's tunnel packets. If it is the
	// unspecified address, the route to each peer decides.
	Local netip.Addr
	// Link is the link to use. If empty, routes decide.
	Link string
	// Peers are the other hosts. Self is this host, if it is listed.
	Peers []model.Peer
	Self  model.Peer
	// mtu is the smallest MTU of the routes to the peers and between them, in bytes.
	mtu int
	// ethernet is true if the links of all routes to the peers are Ethernet links.
	ethernet bool
}

// Find finds out from the host's routes and links what carries the overlay. The
// error names the peer, group or underlay that cannot be used.
func Find(n model.Network, f plan.Facts) (Underlay, error) {
	u := Underlay{mtu: maxPacket, ethernet: true}
	if n.Overlay.UnderlayMTU != 0 {
		u.mtu = min(u.mtu, n.Overlay.UnderlayMTU)
	}
	sources := map[netip.Addr]bool{}
	for _, p := range n.Overlay.Peers {
		first := f.Links[p.Address.String()]
		if holds(first, p.Address) {
			u.Self = p
			u.mtu = min(u.mtu, first.MTU)
			continue
		}
		for _, a := range p.Underlay() {
			l, ok := f.Links[a.String()]
			if !ok {
				return u,
					fmt.Errorf("peer %s: no route to it: `ip route get %s` should show one; add it, or correct the address", a, a)
			}
			sources[l.Source] = true
			u.ethernet = u.ethernet && l.Encap == "ether"
			u.mtu = min(u.mtu, l.MTU)
		}
		u.Peers = append(u.Peers, p)
	}
	if g := n.Overlay.Group; g.IsValid() {
		if l, ok := f.Links[g.String()]; ok {
			u.mtu = min(u.mtu, l.MTU)
			u.Link = l.Name
		}
	}
	err := u.choose(n, f, sources)
	return u, err
}

// choose chooses the host's address and link for packets to the other hosts.
// sources are the source addresses that the routes to them select.
func (u *Underlay) choose(n model.Network, f plan.Facts, sources map[netip.Addr]bool) error {
	v4 := n.Overlay.IPv4()
	u.Local = netip.IPv6Unspecified()
	if v4 {
		u.Local = netip.IPv4Unspecified()
	}
	if len(n.Overlay.Underlays) > 0 {
		return u.named(n, f, v4)
	}
	switch {
	case n.Overlay.Group.IsValid() && u.Link == "":
		return fmt.Errorf("group %s: no route to it: name the link to use as underlay", n.Overlay.Group)
	case u.Self.Address.IsValid() && len(u.Self.Further) == 0:
		u.Local = u.Self.Address
	case len(sources) == 1 && !u.Self.Address.IsValid():
		for a := range sources {
			u.Local = a
		}
	}
	if n.Overlay.Encrypt && u.Local.IsUnspecified() {
		return errors.New("underlay: the routes to the peers have several source addresses, and the host's key is derived from one address: list this host as a peer, or set the address as underlay")
	}
	return nil
}

// named uses the underlays that the overlay names.
func (u *Underlay) named(n model.Network, f plan.Facts, v4 bool) error {
	named := n.Overlay.Underlays
	if len(named) > 1 && n.Overlay.Group.IsValid() {
		return errors.New("underlay: a multicast group needs exactly one underlay: name only one, or list the hosts as peers")
	}
	if len(named) > 1 && n.Overlay.Encrypt {
		return errors.New("underlay: an encrypted overlay needs exactly one, because each host's key is derived from its address: name one")
	}
	for _, name := range named {
		l, ok := f.Links[name]
		if !ok {
			return fmt.Errorf("underlay %s: the host has no such link or address: `ip -brief address` lists what it has", name)
		}
		if !l.Up {
			return fmt.Errorf("underlay %s: the link is down: ip link set %s up", name, escape.Shell(l.Name))
		}
		addr, err := address(name, l, v4)
		if err != nil {
			return err
		}
		if len(named) > 1 {
			u.mtu = min(u.mtu, l.MTU)
			continue // the routes to the peers choose among them
		}
		u.Local = addr
		_, err = netip.ParseAddr(name)
		if err != nil && holds(l, u.Self.Address) {
			u.Local = u.Self.Address // the address that the other hosts have in their lists
		}
		if err != nil || n.Overlay.Group.IsValid() {
			u.Link = l.Name
			u.mtu = min(u.mtu, l.MTU)
		}
	}
	return nil
}

// address returns the host's address on a named underlay.
func address(name string, l plan.HostLink, v4 bool) (netip.Addr, error) {
	family := map[bool]string{true: "IPv4", false: "IPv6"}[v4]
	if a, err := netip.ParseAddr(name); err == nil {
		switch {
		case !holds(l, a):
			return a,
				fmt.Errorf("underlay %s: this host does not have the address: `ip -brief address` lists its addresses",
					a)
		case a.Is4() != v4:
			return a, fmt.Errorf("underlay %s: the hosts of this overlay use %s: name an address of that family", a,
				family)
		}
		return a, nil
	}
	for _, p := range l.Addresses {
		if a := p.Addr(); a.Is4() == v4 && !a.IsLinkLocalUnicast() {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("underlay %s: the link has no %s address, which the hosts of this overlay use: add one to the link, or name another underlay",
		name, family)
}

func holds(l plan.HostLink, a netip.Addr) bool {
	return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
}
