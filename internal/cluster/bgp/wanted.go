package bgp

import (
	"net/netip"
	"slices"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// wanted is what a node announces, and to whom.
type wanted struct {
	// id is the node's BGP identifier.
	id        netip.Addr
	routers   []router
	addresses []netip.Addr
}

// wantedOf returns what the node announces according to a snapshot. A drained node, and one that is not
// in the snapshot, announces nothing. The Member releases what a removed node announces (Announcer.Release).
func wantedOf(s kv.Snapshot, node string) (w wanted, problems []string) {
	self, exists, err := record.Get[record.Node](s, record.Key(record.Nodes, node))
	if err != nil || !exists {
		return w, nil // package networks reports it
	}
	w.id = identifier(self)
	for e := range s.Under(record.BGPPeers) {
		p, err := record.Decode[record.BGPPeer](e)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		if len(p.Nodes) == 0 || slices.Contains(p.Nodes, node) {
			w.routers = append(w.routers, router{Address: p.Address, AS: p.AS, LocalAS: p.LocalAS, BFD: p.BFD})
		}
	}
	if self.Drained {
		return w, problems
	}
	for _, a := range record.Each[record.Address](s, record.Addresses) { // package hold reports the others
		if a.Announce == record.AnnounceBGP && !a.Removed && a.Candidate(node) {
			w.addresses = append(w.addresses, a.Prefix.Addr())
		}
	}
	return w, problems
}

// identifier returns the BGP identifier of a node (RFC 6286): its first IPv4 address, else a part of its
// id, which is random.
func identifier(n record.Node) netip.Addr {
	for _, a := range n.Addresses {
		if a.Is4() {
			return a
		}
	}
	var b [4]byte
	copy(b[:], n.ID)
	return netip.AddrFrom4(b)
}
