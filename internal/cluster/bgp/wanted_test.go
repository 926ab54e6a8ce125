package bgp

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

func snapshot(records map[string]any) kv.Snapshot {
	var all []kv.Entry
	for key, r := range records {
		value, isText := r.(string)
		if !isText {
			value = string(record.Encode(r))
		}
		all = append(all, kv.Entry{Key: key, Value: []byte(value), Revision: 1})
	}
	return kv.NewTable(1, all)
}

func address(text string, candidates ...string) record.Address {
	return record.Address{Prefix: netip.MustParsePrefix(text), Announce: record.AnnounceBGP, Candidates: candidates}
}

func TestWanted(t *testing.T) {
	held := record.Address{Prefix: netip.MustParsePrefix("192.0.2.10/24")}
	removed := address("203.0.113.3/32")
	removed.Removed = true
	first := record.BGPPeer{Address: netip.MustParseAddr("192.0.2.1"), AS: 1, LocalAS: 2, BFD: true}
	second := record.BGPPeer{Address: netip.MustParseAddr("192.0.2.2"), AS: 1, LocalAS: 2, Nodes: []string{"b"}}
	records := map[string]any{
		"nodes/a": record.Node{ID: "a", Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::1"),
			netip.MustParseAddr("192.0.2.11")}},
		"nodes/b":       record.Node{ID: "bbbb", Drained: true},
		"bgp/192.0.2.1": first, "bgp/192.0.2.2": second, "bgp/192.0.2.3": "not JSON",
		"addrs/192.0.2.10": held, "addrs/203.0.113.1": address("203.0.113.1/32"),
		"addrs/203.0.113.2": address("203.0.113.2/32", "b"), "addrs/203.0.113.3": removed,
		"addrs/203.0.113.4": address("203.0.113.4/32", "a", "b"),
	}
	s := snapshot(records)
	w, problems := wantedOf(s, "a")
	want := wanted{id: netip.MustParseAddr("192.0.2.11"),
		routers:   []router{{Address: first.Address, AS: 1, LocalAS: 2, BFD: true}},
		addresses: []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.4")}}
	if !reflect.DeepEqual(w, want) {
		t.Errorf("node a wants %+v, want %+v", w, want)
	}
	if len(problems) != 1 || !strings.Contains(problems[0], "bgp/192.0.2.3") {
		t.Errorf("problems %q", problems)
	}
	if w, _ := wantedOf(s, "b"); len(w.addresses) != 0 || len(w.routers) != 2 || !w.id.Is4() {
		t.Errorf("the drained node b wants %+v", w)
	}
	if w, _ := wantedOf(s, "c"); len(w.addresses)+len(w.routers) != 0 {
		t.Errorf("a node that was removed wants %+v", w)
	}
}
