package vip

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// Nodes are the nodes of a cluster that may hold an address.
type Nodes struct {
	// Candidates are the ids of all of them, sorted.
	Candidates []string
	// Healthy are the ids of those that are alive and not drained, the preferred one
	// first. The order is that of a rendezvous hash, so addresses are spread over nodes,
	// and a node that fails changes nothing for the addresses of the others.
	Healthy []string
}

// NodesOf returns the nodes that may hold an address.
func NodesOf(s kv.Snapshot, a record.Address) Nodes {
	var n Nodes
	for e := range s.Under(record.Nodes) {
		node, err := record.Decode[record.Node](e)
		if err != nil || len(a.Candidates) > 0 && !slices.Contains(a.Candidates, node.ID) {
			continue
		}
		n.Candidates = append(n.Candidates, node.ID)
		if _, alive := s.Get(record.Key(record.Alives, node.ID)); alive && !node.Drained {
			n.Healthy = append(n.Healthy, node.ID)
		}
	}
	slices.Sort(n.Candidates)
	order(a.Prefix.Addr(), n.Healthy)
	return n
}

// order sorts nodes by the rendezvous hash of an address.
func order(address netip.Addr, nodes []string) {
	weight := func(node string) uint64 {
		h := fnv.New64a()
		h.Write(address.AsSlice())
		h.Write([]byte(node))
		return mix(h.Sum64())
	}
	slices.SortFunc(nodes, func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a, b))
	})
}

// mix spreads the bits of a hash (the finalizer of MurmurHash3): without it, FNV orders
// nodes whose ids differ in the last byte alike for all addresses.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
