package vip

import (
	"cmp"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// Nodes are the nodes of a cluster that may hold an address.
type Nodes struct {
	// Candidates are the ids of all of them, sorted.
	Candidates []string
	// Able are the ids of those that can take the address now: they are alive, not drained, and
	// have not reported that they cannot hold it. The preferred one is first. The order is that of a
	// rendezvous hash, so addresses are spread over nodes, and a node that fails changes nothing for
	// the addresses of the others.
	Able []string
}

// Members are the nodes of a cluster, as far as they matter for holding addresses. Its zero value
// has no nodes. Its methods may not be called concurrently with Update.
type Members struct {
	// drained are the nodes with a record, and whether they are drained. alive are the nodes that are
	// alive and not frozen, and why they cannot hold addresses.
	drained map[string]bool
	alive   map[string]map[netip.Addr]string
}

// MembersOf returns the members of a snapshot.
func MembersOf(s kv.Snapshot) *Members {
	m := &Members{}
	m.Update(kv.Update{Snapshot: s})
	return m
}

// Update takes a snapshot, and reports whether the result of Nodes can have changed. The first one is
// read as a whole, all others by their changed keys, because records of addresses change all the time.
func (m *Members) Update(u kv.Update) (changed bool) {
	keys := u.Changed
	if m.drained == nil {
		m.drained, m.alive, changed = map[string]bool{}, map[string]map[netip.Addr]string{}, true
		keys = nil
		for _, prefix := range []string{record.Nodes, record.Alives} {
			for e := range u.Snapshot.Under(prefix) {
				keys = append(keys, e.Key)
			}
		}
	}
	for _, key := range keys {
		if id, ok := strings.CutPrefix(key, record.Nodes); ok {
			changed = m.learnNode(u.Snapshot, key, id) || changed
		}
		if id, ok := strings.CutPrefix(key, record.Alives); ok {
			changed = m.learnAlive(u.Snapshot, key, id) || changed
		}
	}
	return changed
}

func (m *Members) learnNode(s kv.Snapshot, key, id string) (changed bool) {
	was, known := m.drained[id]
	n, exists, _ := record.Get[record.Node](s, key) // a record that cannot be read is none
	delete(m.drained, id)
	if exists {
		m.drained[id] = n.Drained
	}
	return known != exists || was != n.Drained
}

// learnAlive takes over whether a node is alive. A node whose record cannot be read is: its lease says so.
func (m *Members) learnAlive(s kv.Snapshot, key, id string) (changed bool) {
	was, known := m.alive[id]
	_, exists := s.Get(key)
	a, _, _ := record.Get[record.Alive](s, key)
	exists = exists && a.Frozen == ""
	delete(m.alive, id)
	if exists {
		m.alive[id] = a.Unable
	}
	return known != exists || !maps.Equal(was, a.Unable)
}

// Drained reports whether a node is drained.
func (m *Members) Drained(node string) bool { return m.drained[node] }

// Unable returns why a node that is alive cannot hold an address, or an empty text.
func (m *Members) Unable(node string, a netip.Addr) string { return m.alive[node][a] }

// Nodes returns the nodes that may hold an address.
func (m *Members) Nodes(a record.Address) Nodes {
	var n Nodes
	for id, drained := range m.drained {
		if !a.Candidate(id) {
			continue
		}
		n.Candidates = append(n.Candidates, id)
		if unable, alive := m.alive[id]; alive && !drained && unable[a.Prefix.Addr()] == "" {
			n.Able = append(n.Able, id)
		}
	}
	slices.Sort(n.Candidates)
	order(a.Prefix.Addr(), n.Able)
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
