package vip

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// cluster is a table of records with the changes of each step.
type cluster struct {
	*kv.Table
	Members
}

// put stores a record, or deletes it if v is nil, and reports whether the members have changed.
func (c *cluster) put(key string, v any) bool {
	next := map[string]kv.Entry{}
	if c.Table != nil {
		for e := range c.Under("") {
			next[e.Key] = e
		}
	}
	delete(next, key)
	if v != nil {
		next[key] = kv.Entry{Key: key, Value: record.Encode(v), Revision: 1}
	}
	var all []kv.Entry
	for _, e := range next {
		all = append(all, e)
	}
	c.Table = kv.NewTable(1, all)
	return c.Update(kv.Update{Snapshot: c.Table, Changed: []string{key}})
}

// TestMembers checks which nodes may hold an address, and which can take it, after each change.
func TestMembers(t *testing.T) {
	c := &cluster{}
	other := netip.MustParseAddr("192.0.2.11")
	rec := record.Address{Prefix: address, Candidates: []string{"a", "b", "c"}}
	unable := func(a netip.Addr) record.Alive {
		return record.Alive{Unable: map[netip.Addr]string{a: "link eth0 has no carrier"}}
	}
	for _, step := range []struct {
		key        string
		put        any
		changed    bool
		candidates []string
		able       []string
	}{
		{"nodes/a", record.Node{ID: "a"}, true, []string{"a"}, nil},
		{"alive/a", record.Alive{}, true, []string{"a"}, []string{"a"}},
		{"alive/a", record.Alive{Problems: []string{"etcd is away"}}, false, []string{"a"}, []string{"a"}},
		{"nodes/b", record.Node{ID: "b"}, true, []string{"a", "b"}, []string{"a"}},
		{"alive/b", unable(other), true, []string{"a", "b"}, []string{"a", "b"}},
		{"alive/b", unable(address.Addr()), true, []string{"a", "b"}, []string{"a"}},
		{"alive/b", record.Alive{}, true, []string{"a", "b"}, []string{"a", "b"}},
		{"nodes/b", record.Node{ID: "b", Drained: true}, true, []string{"a", "b"}, []string{"a"}},
		{"nodes/d", record.Node{ID: "d"}, true, []string{"a", "b"}, []string{"a"}},
		{"addrs/192.0.2.10", rec, false, []string{"a", "b"}, []string{"a"}},
		{"alive/a", nil, true, []string{"a", "b"}, nil},
		{"nodes/a", nil, true, []string{"b"}, nil},
	} {
		changed := c.put(step.key, step.put)
		if changed != step.changed {
			t.Errorf("%s %+v: changed is %v, want %v", step.key, step.put, changed, step.changed)
		}
		for _, m := range []*Members{&c.Members, MembersOf(c.Table)} {
			got := m.Nodes(rec)
			slices.Sort(got.Able)
			if fmt.Sprint(got) != fmt.Sprint(Nodes{step.candidates, step.able}) {
				t.Errorf("%s %+v: the nodes are %v, want %v, %v", step.key, step.put, got, step.candidates, step.able)
			}
		}
	}
	c.put("alive/b", unable(address.Addr()))
	if why := c.Unable("b", address.Addr()); why != "link eth0 has no carrier" || !c.Drained("b") || c.Drained("d") {
		t.Errorf("node b cannot hold the address: %q", why)
	}
}
