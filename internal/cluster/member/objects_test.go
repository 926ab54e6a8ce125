package member_test

import (
	"net/netip"
	"reflect"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
)

// TestObjectsOfNodes: each of three nodes lists what the others have, without a question to any host. It says which
// records it cannot read, and leaves out those of hosts that are no nodes.
func TestObjectsOfNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two, three := w.three()
	name := func(h *host) string {
		s, err := h.Status(h.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Node
	}
	at := netip.MustParseAddr("10.0.0.2")
	w.put(record.Key(record.Reals, "web", two.id(), "web-1"), record.Real{Address: at, Port: 80, Weight: 1,
		Draining: true})
	w.put(record.Key(record.Reals, "web", "stranger", "web-1"), record.Real{Address: at, Port: 80, Weight: 1})
	broken := record.Key(record.Endpoints, "shop", two.id(), "broken")
	if _, err := w.store.Client().Commit(w.Context(), kv.Txn{Then: []kv.Change{
		{Key: broken, Value: []byte("{")}}}); err != nil {
		t.Fatal(err)
	}
	last := record.Key(record.Selected, "0123456789abcdef", three.id(), "web-3")
	w.put(record.Key(record.Endpoints, "shop", two.id(), "web-2"), record.Endpoint{Addresses: []netip.Addr{at}})
	w.put(last, record.SelectedSandbox{Address: at, Down: "its check fails"})
	want := []api.ClusterObject{
		{Node: name(two), Kind: api.ClusterReal, Of: "web", Name: "web-1", Addresses: []netip.Addr{at}, Port: 80,
			Draining: true},
		{Node: name(two), Kind: api.ClusterEndpoint, Of: "shop", Name: "broken",
			Unreadable: "read record " + broken + ": unexpected end of JSON input"},
		{Node: name(two), Kind: api.ClusterEndpoint, Of: "shop", Name: "web-2", Addresses: []netip.Addr{at}},
		{Node: name(three), Kind: api.ClusterSandbox, Name: "web-3", Addresses: []netip.Addr{at},
			Down: "its check fails"}}
	for _, h := range []*host{one, two, three} {
		h.has(last)
		if got, err := member.Objects(h.Member); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", name(h), got, err, want)
		}
	}
}
