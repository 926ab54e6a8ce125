package derive

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// derive returns the network as this node has it, or nil if the node has no block of a subnet.
func (d *Deriver) derive(n *network) (*model.Network, error) {
	if !n.known {
		return nil, nil
	}
	blocks := d.blocks(n)
	for _, s := range n.record.Spec.Subnets {
		if !slices.ContainsFunc(blocks[d.node], s.Prefix.Overlaps) {
			return nil, nil
		}
	}
	spec := n.record.Spec
	spec.Origin, spec.Drained = model.FromCluster, d.nodes[d.node].Drained
	setRanges(&spec, blocks[d.node])
	if n.record.Direct {
		err := d.direct(n, &spec, blocks)
		return &spec, err
	}
	err := d.overlay(n, &spec, blocks)
	if len(spec.Overlay.Peers) == 0 {
		return nil, err
	}
	return &spec, err
}

// setRanges makes the network lease from these blocks.
func setRanges(spec *model.Network, blocks []netip.Prefix) {
	spec.Subnets = slices.Clone(spec.Subnets)
	for _, b := range blocks {
		i := slices.IndexFunc(spec.Subnets, func(s model.Subnet) bool { return s.Prefix.Overlaps(b) })
		if spec.Subnets[i].Range.IsValid() {
			spec.FurtherRanges = append(spec.FurtherRanges, b)
		} else {
			spec.Subnets[i].Range = b
		}
	}
}

// blocks returns the blocks of each node of the cluster. It ignores those that are no part of a
// subnet, which no node claims.
func (d *Deriver) blocks(n *network) map[string][]netip.Prefix {
	all := map[string][]netip.Prefix{}
	for p, b := range n.blocks {
		if _, exists := d.nodes[b.Node]; exists && n.has(p.Addr(), b.Node) {
			all[b.Node] = append(all[b.Node], p)
		}
	}
	for _, blocks := range all {
		slices.SortFunc(blocks, func(a, b netip.Prefix) int {
			return int(n.blocks[a].Sequence - n.blocks[b].Sequence)
		})
	}
	return all
}

// single returns the endpoints that other nodes must know one by one, by node: their addresses are outside
// the node's blocks, or they have hardware addresses of their own. Each has one address.
func (d *Deriver) single(n *network) map[string][]model.PeerEndpoint {
	found := map[netip.Addr]endpoint{}
	for a := range n.moves {
		if node := d.holder(n, a); n.within(a) && node != "" && !n.has(a, node) {
			found[a] = endpoint{node: node}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.endpoints)) { // of several records with an address, the newest counts
		e := n.endpoints[key]
		for _, a := range e.Addresses {
			if n.within(a) && d.holder(n, a) == e.node && found[a].revision < e.revision {
				found[a] = e
			}
		}
	}
	all, macs := map[string][]model.PeerEndpoint{}, map[string]bool{}
	for _, a := range slices.SortedFunc(maps.Keys(found), netip.Addr.Compare) {
		e := found[a]
		if mac := ownMAC(e.MAC, macs); mac != "" || !n.has(a, e.node) {
			all[e.node] = append(all[e.node], model.PeerEndpoint{Addresses: []netip.Addr{a}, MAC: mac})
		}
	}
	return all
}

// ownMAC returns the endpoint's own MAC address in the form of model.PeerEndpoint. It is empty if
// the record has none that the endpoint can have: a group's, one that follows from an IP address, or
// one that another endpoint has.
func ownMAC(text string, used map[string]bool) string {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || bytes.Equal(mac, make([]byte, 6)) ||
		bytes.HasPrefix(mac, []byte{2, 0xf1}) || used[mac.String()] {
		return ""
	}
	used[mac.String()] = true
	return mac.String()
}

// within reports whether the address is in a subnet.
func (n *network) within(a netip.Addr) bool {
	return slices.ContainsFunc(n.record.Spec.Subnets, func(s model.Subnet) bool { return s.Prefix.Contains(a) })
}

// overlay fills in the peers: the nodes with blocks or with addresses of other nodes' blocks.
func (d *Deriver) overlay(n *network, spec *model.Network, blocks map[string][]netip.Prefix) error {
	spec.Overlay.ByRange = true
	single := d.single(n)
	var used []string
	for _, id := range slices.Sorted(maps.Keys(d.nodes)) {
		if len(blocks[id]) > 0 || len(single[id]) > 0 {
			used = append(used, id)
		}
	}
	used, v4, lacking := d.family(used)
	if !slices.Contains(used, d.node) {
		return lacking
	}
	at, err := d.addresses(used, v4)
	err = errors.Join(lacking, err)
	keys := map[string]string{}
	if spec.Overlay.Encrypt {
		var invalid error
		keys, invalid = d.keys(n, used)
		err = errors.Join(err, invalid)
	}
	for _, id := range used {
		if at[id].IsValid() && (keys[id] != "" || !spec.Overlay.Encrypt) {
			spec.Overlay.Peers = append(spec.Overlay.Peers,
				model.Peer{Address: at[id], Ranges: blocks[id], PublicKey: keys[id], Endpoints: single[id]})
		}
	}
	if spec.Overlay.Encrypt && keys[d.node] == "" {
		spec.Overlay.Peers = nil // the node does not have the network before its key
	}
	return errors.Join(err, d.mtu(spec, used))
}

// mtu makes the underlay of the network that of its narrowest node, so that all hosts give the network the
// same MTU. If the network has an MTU of its own, mtu returns an error if this node's links carry less.
func (d *Deriver) mtu(spec *model.Network, ids []string) error {
	spec.Overlay.UnderlayMTU = 0
	if spec.MTU != 0 {
		return d.checkMTU(*spec)
	}
	least := spec.Overlay.MinUnderlayMTU()
	var errs []error
	for _, id := range ids {
		mtu := d.nodes[id].MTU
		switch {
		case mtu == 0: // its version does not publish it
		case mtu < least:
			errs = append(errs, fmt.Errorf("the link of node %s has an MTU of %d bytes, and the network needs at "+
				"least %d: raise it on that host", d.nodes[id].Name, mtu, least))
		case spec.Overlay.UnderlayMTU == 0 || mtu < spec.Overlay.UnderlayMTU:
			spec.Overlay.UnderlayMTU = mtu
		}
	}
	return errors.Join(errs...)
}

// checkMTU returns an error if the packets of a network do not fit this node's links.
func (d *Deriver) checkMTU(spec model.Network) error {
	mtu, overhead := d.nodes[d.node].MTU, spec.Overlay.Overhead()
	if mtu == 0 || spec.MTU+overhead <= mtu {
		return nil
	}
	return fmt.Errorf("mtu %d: the link of this host has an MTU of %d bytes, and the overlay takes %d of them: raise "+
		"the link's to %d, or create the network again without --mtu", spec.MTU, mtu, overhead, spec.MTU+overhead)
}

// keys returns the public keys of the nodes in an encrypted network. Nodes without a key get no
// packets. Of two nodes with the same key none has it, except for this node: the record of the other
// one is a mistake or an attack.
func (d *Deriver) keys(n *network, ids []string) (map[string]string, error) {
	holders := map[string][]string{}
	for _, id := range ids {
		if key := n.keys[id]; key != "" {
			holders[key] = append(holders[key], id)
		}
	}
	keys := map[string]string{}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(holders)) {
		if ids := holders[key]; len(ids) > 1 {
			errs = append(errs, fmt.Errorf("nodes %s and %s have the same key: they get nothing from this node: remove "+
				"one of them with `fairlead cluster rm`", d.nodes[ids[0]].Name, d.nodes[ids[1]].Name))
		} else {
			keys[ids[0]] = key
		}
	}
	if own := n.keys[d.node]; own != "" {
		keys[d.node] = own
	}
	return keys, errors.Join(errs...)
}

// family returns the address family of the underlay, and the nodes that have an address of it: the family that
// most of the nodes have, IPv4 if as many have each. All nodes choose the same one. The error names the nodes that
// are left out: they must not take the network from the others.
func (d *Deriver) family(ids []string) (reached []string, v4 bool, err error) {
	having := map[bool][]string{}
	for _, id := range ids {
		for _, v4 := range []bool{true, false} {
			if address(d.nodes[id], v4).IsValid() {
				having[v4] = append(having[v4], id)
			}
		}
	}
	v4 = len(having[true]) >= len(having[false])
	name := "IPv6"
	if v4 {
		name = "IPv4"
	}
	var errs []error
	for _, id := range ids {
		if !slices.Contains(having[v4], id) {
			errs = append(errs, fmt.Errorf("node %s has no %s address, and most nodes reach each other by theirs: it does "+
				"not have the network: let it leave the cluster, and join again with such an --address", d.nodes[id].Name,
				name))
		}
	}
	return having[v4], v4, errors.Join(errs...)
}

// addresses returns the address of each node. Of two nodes with the same address only the one that
// joined last has it, because a host that joins again is another node, but on its own host each has it. The error
// names the others, and is the same on all hosts.
func (d *Deriver) addresses(ids []string, v4 bool) (map[string]netip.Addr, error) {
	at, holder := map[string]netip.Addr{}, map[netip.Addr]string{}
	var errs []error
	for _, id := range ids {
		a := address(d.nodes[id], v4)
		other, taken := holder[a]
		old, late := other, id
		if taken && d.nodes[other].Joined.After(d.nodes[id].Joined) {
			old, late = id, other
		}
		if taken {
			errs = append(errs, fmt.Errorf("nodes %s and %s have the address %s: if %s no longer exists, remove it with "+
				"`fairlead cluster rm`", d.nodes[old].Name, d.nodes[late].Name, a, d.nodes[old].Name))
			if old == d.node {
				old, late = late, old
			}
			delete(at, old)
		}
		if a.IsValid() {
			at[late], holder[a] = a, late
		}
	}
	return at, errors.Join(errs...)
}

// direct fills in the routes to the blocks of other nodes, and to the endpoints that moved to them.
func (d *Deriver) direct(n *network, spec *model.Network, blocks map[string][]netip.Prefix) error {
	for id, endpoints := range d.single(n) {
		for _, e := range endpoints {
			for _, a := range e.Addresses {
				if !n.has(a, id) { // an address in a block of its node needs no other route
					blocks[id] = append(blocks[id], netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(blocks)) {
		if id == d.node {
			continue
		}
		for _, p := range blocks[id] {
			at := address(d.nodes[id], p.Addr().Is4())
			if !at.IsValid() {
				errs = append(errs, fmt.Errorf("node %s has addresses %s, and none of that family on the LAN",
					d.nodes[id].Name, p))
				continue
			}
			spec.Remote = append(spec.Remote, model.Route{To: p, Via: at})
		}
	}
	return errors.Join(errs...)
}

// address returns the node's address of the family.
func address(n record.Node, v4 bool) netip.Addr {
	i := slices.IndexFunc(n.Addresses, func(a netip.Addr) bool { return a.Is4() == v4 })
	if i < 0 {
		return netip.Addr{}
	}
	return n.Addresses[i]
}
