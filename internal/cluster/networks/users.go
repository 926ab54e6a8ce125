package networks

import (
	"maps"
	"net/netip"
	"slices"
)

// users are what used addresses on this host at a time.
type users struct {
	attached map[place]string
	reserved map[place]int
	// ever is Networks.reservedEver at that time. While it is the same, nothing else was attached.
	ever int
}

// users returns what uses addresses now. The reservations are read first, because an address is attached before its
// reservation ends.
func (n *Networks) users() users {
	n.mu.Lock()
	u := users{attached: map[place]string{}, reserved: maps.Clone(n.reservations), ever: n.reservedEver}
	n.mu.Unlock()
	for _, v := range n.cfg.Host.Attachments() {
		for _, a := range v.Endpoint.Addresses {
			u.attached[place{v.Network, a}] = v.Name
		}
	}
	return u
}

// isCurrent reports whether nothing can have been attached since u was read.
func (n *Networks) isCurrent(u users) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reservedEver == u.ever
}

// userIn returns what uses an address on this host, or an empty string.
func (n *Networks) userIn(u users, p place) string {
	switch {
	case u.attached[p] != "":
		return u.attached[p]
	case u.reserved[p] > 0:
		return "a sandbox that is being attached"
	case n.lessor != nil && n.lessor.Leased(p.network, p.address):
		return "a container"
	}
	return ""
}

// user returns what uses an address on this host now, or an empty string.
func (n *Networks) user(p place) string { return n.userIn(n.users(), p) }

// attachedAt returns the name of the attachment with an address, or an empty string.
func (n *Networks) attachedAt(p place) string {
	for _, v := range n.cfg.Host.Attachments() {
		if v.Network == p.network && slices.Contains(v.Endpoint.Addresses, p.address) {
			return v.Name
		}
	}
	return ""
}

// used returns the leased addresses of each network.
func (n *Networks) used() map[string][]netip.Addr {
	all := map[string][]netip.Addr{}
	for _, v := range n.cfg.Host.Attachments() {
		all[v.Network] = append(all[v.Network], v.Endpoint.Addresses...)
	}
	return all
}
