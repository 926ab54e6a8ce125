package derive_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/cluster/derive"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	prefix = netip.MustParsePrefix
	addr   = netip.MustParseAddr
	equal  = cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty()}
)

// records is the content of a cluster: records by their keys.
type records map[string]any

// snapshot returns the records as a snapshot.
func (r records) snapshot() *kv.Table {
	var entries []kv.Entry
	for key, v := range r {
		entries = append(entries, kv.Entry{Key: key, Value: record.Encode(v), Revision: 1})
	}
	return kv.NewTable(1, entries)
}

// fresh derives the networks of a node from a snapshot alone.
func fresh(s *kv.Table, node string) ([]model.Network, []string) {
	networks, _, problems := derive.New(node).Update(kv.Update{Snapshot: s, Changed: kv.Diff(kv.NewTable(0, nil), s)})
	return networks, problems
}

func node(id string, addrs ...string) record.Node {
	n := record.Node{ID: id, Name: "host-" + id}
	for _, a := range addrs {
		n.Addresses = append(n.Addresses, addr(a))
	}
	return n
}

// three is a cluster with three nodes and two networks. Node c has no block yet.
func three() records {
	return records{
		"nodes/a": node("a", "192.0.2.1", "2001:db8::1"),
		"nodes/b": node("b", "192.0.2.2", "2001:db8::2"),
		"nodes/c": node("c", "192.0.2.3", "2001:db8::3"),
		"nets/web": record.Network{BlockBits: []int{26}, Spec: model.Network{Name: "web", Driver: model.DriverVXLAN,
			Subnets: []model.Subnet{{Prefix: prefix("10.9.0.0/16")}}, Overlay: model.Overlay{VNI: 42}}},
		"blocks/web/10.9.1.0/26":  record.Block{Node: "a", Sequence: 3},
		"blocks/web/10.9.2.0/26":  record.Block{Node: "b", Sequence: 1},
		"blocks/web/10.9.0.64/26": record.Block{Node: "a", Sequence: 2},
		"nets/lan": record.Network{BlockBits: []int{26, 122}, Direct: true, Spec: model.Network{Name: "lan",
			Driver: model.DriverRouted, Subnets: []model.Subnet{{Prefix: prefix("10.8.0.0/16")},
				{Prefix: prefix("fd00:8::/64")}}}},
		"blocks/lan/10.8.1.0/26":    record.Block{Node: "a", Sequence: 1},
		"blocks/lan/10.8.3.0/26":    record.Block{Node: "a", Sequence: 4},
		"blocks/lan/fd00:8::40/122": record.Block{Node: "a", Sequence: 2},
		"blocks/lan/10.8.2.0/26":    record.Block{Node: "b", Sequence: 3},
		"blocks/lan/fd00:8::80/122": record.Block{Node: "b", Sequence: 5},
	}
}

// TestEncrypted derives an encrypted overlay: a node without a key of its own, with an invalid one or with
// that of another node is no peer. This node does not have the network before its own key.
func TestEncrypted(t *testing.T) {
	public := func(c byte) record.NodeKey {
		return record.NodeKey{Public: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{c}, 32))}
	}
	r := three()
	web := r["nets/web"].(record.Network)
	web.Spec.Overlay.Encrypt = true
	r["nets/web"] = web
	r["blocks/web/10.9.3.0/26"] = record.Block{Node: "c", Sequence: 4}
	const invalid, twice = "want a WireGuard key", "the same key"
	for name, c := range map[string]struct {
		keys map[string]record.NodeKey
		want string // the peers' hosts
		says string
	}{
		"all":         {map[string]record.NodeKey{"a": public(1), "b": public(2), "c": public(3)}, "1 2 3", ""},
		"no key yet":  {map[string]record.NodeKey{"a": public(1), "b": public(2)}, "1 2", ""},
		"no own key":  {map[string]record.NodeKey{"b": public(2), "c": public(3)}, "", ""},
		"a text":      {map[string]record.NodeKey{"a": public(1), "b": {Public: "x"}}, "1", invalid},
		"zeros":       {map[string]record.NodeKey{"a": public(1), "b": public(0)}, "1", invalid},
		"twice":       {map[string]record.NodeKey{"a": public(1), "b": public(2), "c": public(2)}, "1", twice},
		"the own key": {map[string]record.NodeKey{"a": public(1), "b": public(1), "c": public(3)}, "1 3", twice},
	} {
		all := maps.Clone(r)
		for id, key := range c.keys {
			all["keys/web/"+id] = key
		}
		networks, problems := fresh(all.snapshot(), "a")
		var got []string
		for _, n := range networks {
			for _, p := range n.Overlay.Peers {
				got = append(got, strings.TrimPrefix(p.Address.String(), "192.0.2."))
			}
		}
		said := strings.Join(problems, "\n")
		if strings.Join(got, " ") != c.want || !strings.Contains(said, c.says) || c.says == "" && said != "" {
			t.Errorf("%s: the peers are %v, want %s; the problems %q", name, got, c.want, problems)
		}
		for i := range networks {
			if networks[i].Overlay.Encrypt {
				networks[i].Overlay.KeyFile = "/web.key" // which package networks sets
			}
		}
		if err := (model.State{Networks: networks}).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNetworks(t *testing.T) {
	networks, problems := fresh(three().snapshot(), "a")
	want := []model.Network{
		{Name: "lan", Driver: model.DriverRouted, Origin: model.FromCluster,
			Subnets: []model.Subnet{{Prefix: prefix("10.8.0.0/16"), Range: prefix("10.8.1.0/26")},
				{Prefix: prefix("fd00:8::/64"), Range: prefix("fd00:8::40/122")}},
			FurtherRanges: []netip.Prefix{prefix("10.8.3.0/26")},
			Remote: []model.Route{{To: prefix("10.8.2.0/26"), Via: addr("192.0.2.2")},
				{To: prefix("fd00:8::80/122"), Via: addr("2001:db8::2")}}},
		{Name: "web", Driver: model.DriverVXLAN, Origin: model.FromCluster,
			Subnets:       []model.Subnet{{Prefix: prefix("10.9.0.0/16"), Range: prefix("10.9.0.64/26")}},
			FurtherRanges: []netip.Prefix{prefix("10.9.1.0/26")},
			Overlay: model.Overlay{VNI: 42, ByRange: true, Peers: []model.Peer{
				{Address: addr("192.0.2.1"), Ranges: []netip.Prefix{prefix("10.9.0.64/26"), prefix("10.9.1.0/26")}},
				{Address: addr("192.0.2.2"), Ranges: []netip.Prefix{prefix("10.9.2.0/26")}}}}},
	}
	if diff := cmp.Diff(want, networks, equal); diff != "" || len(problems) > 0 {
		t.Errorf("problems %q; networks, want (-), got (+):\n%s", problems, diff)
	}
	if err := (model.State{Networks: networks}).Validate(); err != nil {
		t.Error(err)
	}
	moved := three()
	moved["moves/lan/10.8.1.7"] = record.Move{Node: "c"}
	moved["moves/lan/10.8.2.7"] = record.Move{Node: "b"}
	networks, _ = fresh(moved.snapshot(), "a")
	if got := fmt.Sprint(networks[0].Remote[2:], networks[0].Listed()); got != "[{10.8.1.7/32 192.0.2.3}] [10.8.1.7]" {
		t.Errorf("the routes to endpoints, and the addresses that are not leased, are %s", got)
	}
	if networks, problems := fresh(three().snapshot(), "c"); len(networks)+len(problems) > 0 {
		t.Errorf("a node without blocks has %v, %q", networks, problems)
	}
}

// TestPeers checks what records of nodes and endpoints make of the list of peers.
func TestPeers(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(records)
		want    string // the peers
		problem string
	}{
		"a name": {func(r records) {
			r["eps/web/b/shop"] = record.Endpoint{Names: []string{"shop"}, Addresses: []netip.Addr{addr("10.9.2.7")}}
		}, "192.0.2.1 192.0.2.2", ""},
		"an endpoint that moved": {func(r records) {
			r["moves/web/10.9.2.7"] = record.Move{Node: "c"}
		}, "192.0.2.1 192.0.2.2 192.0.2.3=10.9.2.7", ""},
		"an endpoint that moved with its MAC address": {func(r records) {
			r["moves/web/10.9.2.7"] = record.Move{Node: "c"}
			r["eps/web/c/shop"] = record.Endpoint{Addresses: []netip.Addr{addr("10.9.2.7")}, MAC: "02:00:00:00:00:07"}
			r["eps/web/b/shop"] = record.Endpoint{Addresses: []netip.Addr{addr("10.9.2.7")}, MAC: "02:00:00:00:00:08"}
		}, "192.0.2.1 192.0.2.2 192.0.2.3=10.9.2.7/02:00:00:00:00:07", ""},
		"an endpoint of another block without a claim": {func(r records) {
			r["eps/web/c/shop"] = record.Endpoint{Addresses: []netip.Addr{addr("10.9.2.7")}, MAC: "02:00:00:00:00:07"}
		}, "192.0.2.1 192.0.2.2", ""},
		"wrong claims": {func(r records) {
			r["moves/web/10.7.2.7"], r["moves/web/10.9.2.8"] = record.Move{Node: "c"}, record.Move{Node: "unknown"}
			r["moves/web/10.9.2.9"] = record.Move{Node: "b"}
		}, "192.0.2.1 192.0.2.2", ""},
		"a claim of no address": {func(r records) { r["moves/web/shop"] = record.Move{Node: "c"} },
			"192.0.2.1 192.0.2.2", "read record moves/web/shop"},
		"an endpoint that moved here": {func(r records) {
			r["moves/web/10.9.2.7"] = record.Move{Node: "a"}
		}, "192.0.2.1=10.9.2.7 192.0.2.2", ""},
		"a MAC address": {func(r records) {
			r["eps/web/b/shop"] = record.Endpoint{Addresses: []netip.Addr{addr("10.9.2.7")}, MAC: "02:00:00:00:00:07"}
		}, "192.0.2.1 192.0.2.2=10.9.2.7/02:00:00:00:00:07", ""},
		"wrong records": {func(r records) {
			r["eps/web/b/shop"] = record.Endpoint{Addresses: []netip.Addr{addr("10.9.2.7")}, MAC: "ff:00:00:00:00:07"}
			r["eps/web/b/out"] = record.Endpoint{Addresses: []netip.Addr{addr("10.7.2.7")}}
			r["blocks/web/10.9.9.0/25"] = record.Block{Node: "c"}
			r["blocks/web/10.7.9.0/26"] = record.Block{Node: "c"}
			r["blocks/web/10.9.9.64/26"] = record.Block{Node: "unknown"}
		}, "192.0.2.1 192.0.2.2", ""},
		"wrong values": {func(r records) { r["blocks/web/10.9.9.0/26"] = "?" }, "192.0.2.1 192.0.2.2",
			"read record blocks/web/10.9.9.0/26"},
		"a removed node": {func(r records) { delete(r, "nodes/b") }, "192.0.2.1", ""},
		"only IPv6 in common": {func(r records) { r["nodes/b"] = node("b", "2001:db8::2") },
			"2001:db8::1 2001:db8::2", ""},
		"no family in common": {func(r records) {
			r["nodes/a"], r["nodes/b"] = node("a", "192.0.2.1"), node("b", "2001:db8::2")
		}, "192.0.2.1", "node host-b has no IPv4 address"},
		"one node of the other family": {func(r records) {
			r["nodes/a"], r["nodes/b"] = node("a", "192.0.2.1"), node("b", "192.0.2.2")
			r["nodes/c"], r["blocks/web/10.9.3.0/26"] = node("c", "2001:db8::3"), record.Block{Node: "c", Sequence: 4}
		}, "192.0.2.1 192.0.2.2", "node host-c has no IPv4 address"},
		"this node is of the other family": {func(r records) {
			r["nodes/a"], r["nodes/b"] = node("a", "192.0.2.1"), node("b", "2001:db8::2")
			r["nodes/c"], r["blocks/web/10.9.3.0/26"] = node("c", "2001:db8::3"), record.Block{Node: "c", Sequence: 4}
		}, "", "node host-a has no IPv6 address"},
		"a host that joined again": {func(r records) {
			again := node("0", "192.0.2.2")
			again.Joined = time.Unix(1, 0)
			r["nodes/0"], r["blocks/web/10.9.7.0/26"] = again, record.Block{Node: "0"}
		}, "192.0.2.2 192.0.2.1", "nodes host-b and host-0 have the address 192.0.2.2: if host-b no longer exists"},
	} {
		t.Run(name, func(t *testing.T) {
			r := three()
			delete(r, "nets/lan")
			test.change(r)
			networks, problems := fresh(r.snapshot(), "a")
			var got []string
			for _, n := range networks {
				if err := (model.State{Networks: networks}).Validate(); err != nil {
					t.Error(err)
				}
				for _, p := range n.Overlay.Peers {
					text := p.Address.String()
					for _, e := range p.Endpoints {
						text += strings.TrimSuffix(fmt.Sprintf("=%s/%s", e.Addresses[0], e.MAC), "/")
					}
					got = append(got, text)
				}
			}
			if s := strings.Join(got, " "); s != test.want {
				t.Errorf("the peers are %q, want %q", s, test.want)
			}
			s := strings.Join(problems, "\n")
			if !strings.Contains(s, test.problem) || (s == "") != (test.problem == "") {
				t.Errorf("the problems are %q, want %q", s, test.problem)
			}
		})
	}
}

// TestOneTextOfAConflict lets two nodes have the same address. Both say the same, so that no administrator removes both.
func TestOneTextOfAConflict(t *testing.T) {
	r := three()
	delete(r, "nets/lan")
	again := node("b", "192.0.2.1")
	again.Joined = time.Unix(1, 0)
	r["nodes/a"], r["nodes/b"] = node("a", "192.0.2.1"), again
	s := r.snapshot()
	_, one := fresh(s, "a")
	_, two := fresh(s, "b")
	want := "nodes host-a and host-b have the address 192.0.2.1: if host-a no longer exists, remove it"
	if len(one) != 1 || !strings.Contains(one[0], want) || !slices.Equal(one, two) {
		t.Errorf("the problems are %q and %q, want %q in both", one, two, want)
	}
}

// TestMTU derives an overlay of nodes with links of several MTUs. All nodes must get the same underlay.
func TestMTU(t *testing.T) {
	for name, test := range map[string]struct {
		mtus    [3]int // of nodes a, b and c
		own     int    // of the network
		want    int
		problem string // on node a
	}{
		"equal":             {[3]int{1500, 1500, 1500}, 0, 1500, ""},
		"one is narrow":     {[3]int{1500, 1400, 9000}, 0, 1400, ""},
		"it has no block":   {[3]int{1500, 1500, 1400}, 0, 1500, ""},
		"an earlier node":   {[3]int{9000, 0, 1500}, 0, 9000, ""},
		"none is known":     {[3]int{}, 0, 0, ""},
		"one is too narrow": {[3]int{1500, 1279, 1500}, 0, 1500, "the link of node host-b has an MTU of 1279 bytes"},
		"a wrong value":     {[3]int{1500, -1, 1500}, 0, 1500, "the link of node host-b has an MTU of -1 bytes"},
		"an own MTU":        {[3]int{1500, 1400, 1500}, 1450, 0, ""},
		"an own MTU that is too large": {[3]int{1500, 1500, 1500}, 1451, 0,
			"mtu 1451: the link of this host has an MTU of 1500 bytes, and the overlay takes 50 of them: raise the link's to 1501"},
		"an own MTU and an unknown link": {[3]int{0, 1500, 1500}, 1451, 0, ""},
	} {
		r := three()
		delete(r, "nets/lan")
		web := r["nets/web"].(record.Network)
		web.Spec.MTU, web.Spec.Overlay.UnderlayMTU = test.own, 1300
		r["nets/web"] = web
		for i, id := range []string{"a", "b", "c"} {
			n := r["nodes/"+id].(record.Node)
			n.MTU = test.mtus[i]
			r["nodes/"+id] = n
		}
		for _, id := range []string{"a", "b"} {
			networks, problems := fresh(r.snapshot(), id)
			if err := (model.State{Networks: networks}).Validate(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(networks) != 1 || networks[0].Overlay.UnderlayMTU != test.want || networks[0].MTU != test.own {
				t.Errorf("%s: node %s has %+v, want an underlay of %d bytes", name, id, networks, test.want)
			}
			if s := strings.Join(problems, "\n"); id == "a" &&
				(!strings.Contains(s, test.problem) || (s == "") != (test.problem == "")) {
				t.Errorf("%s: the problems are %q, want %q", name, s, test.problem)
			}
		}
	}
}

// TestMTUEncrypted derives an encrypted overlay of nodes with links that are nearly too narrow for WireGuard.
func TestMTUEncrypted(t *testing.T) {
	for v4, least := range map[bool]int{true: 1340, false: 1360} {
		for mtu, want := range map[int]int{least - 1: 1500, least: least} {
			r := three()
			web := r["nets/web"].(record.Network)
			web.Spec.Overlay.Encrypt = true
			r["nets/web"] = web
			for i, id := range []string{"a", "b", "c"} {
				n := r["nodes/"+id].(record.Node)
				n.MTU = 1500
				if !v4 {
					n.Addresses = []netip.Addr{addr(fmt.Sprintf("2001:db8::%d", i+1))}
				}
				if id == "b" {
					n.MTU = mtu
				}
				r["nodes/"+id], r["keys/web/"+id] = n, record.NodeKey{
					Public: base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(i + 1)}, 32))}
			}
			networks, problems := fresh(r.snapshot(), "a")
			i := slices.IndexFunc(networks, func(n model.Network) bool { return n.Name == "web" })
			if i < 0 || networks[i].Overlay.UnderlayMTU != want || len(networks[i].Overlay.Peers) < 2 {
				t.Errorf("IPv4 %v, %d bytes: %+v, want an underlay of %d bytes", v4, mtu, networks, want)
			}
			said := strings.Contains(strings.Join(problems, "\n"), fmt.Sprintf("at least %d", least))
			if said != (mtu < least) {
				t.Errorf("IPv4 %v, %d bytes: the problems are %q", v4, mtu, problems)
			}
		}
	}
}

// TestIncremental makes random changes, and compares the networks with those of a new Deriver.
func TestIncremental(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all := three()
	all["eps/web/b/shop"] = record.Endpoint{Names: []string{"shop"}, Addresses: []netip.Addr{addr("10.9.2.7")}}
	all["eps/web/c/moved"] = record.Endpoint{Addresses: []netip.Addr{addr("10.9.2.8")}, MAC: "02:00:00:00:00:08"}
	all["moves/web/10.9.2.8"] = record.Move{Node: "c"}
	maps.Copy(all, site())
	drained := site()["nodes/b"]
	var keys []string
	for key := range all {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	now, last, d := records{}, kv.NewTable(0, nil), derive.New("a")
	for range 500 {
		all["nodes/b"] = drained
		if random.IntN(2) > 0 {
			all["nodes/b"] = three()["nodes/b"]
		}
		narrow := node("a", "192.0.2.1", "2001:db8::1")
		narrow.MTU = 1400 + 100*random.IntN(2)
		all["nodes/a"] = narrow
		if now["nodes/a"] != nil {
			now["nodes/a"] = narrow
		}
		for range 1 + random.IntN(3) {
			if key := keys[random.IntN(len(keys))]; now[key] == nil {
				now[key] = all[key]
			} else {
				delete(now, key)
			}
		}
		next := now.snapshot()
		networks, services, problems := d.Update(kv.Update{Snapshot: next, Changed: kv.Diff(last, next)})
		wantNetworks, wantServices, wantProblems := derive.New("a").Update(kv.Update{Snapshot: next,
			Changed: kv.Diff(kv.NewTable(0, nil), next)})
		if diff := cmp.Diff([]any{wantNetworks, wantServices, wantProblems}, []any{networks, services, problems},
			equal); diff != "" {
			t.Fatalf("after a change, a new Deriver (-) and this one (+) differ:\n%s", diff)
		}
		last = next
	}
}

// BenchmarkUpdate changes one record of a cluster with 1,000 nodes and 50,000 endpoints.
func BenchmarkUpdate(b *testing.B) {
	const nodes, each = 1000, 50
	all := records{"nets/web": three()["nets/web"]}
	blockOf := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 2), byte(i << 6)}), 26)
	}
	for i := range nodes {
		id := fmt.Sprint(i)
		all["nodes/"+id] = node(id, fmt.Sprintf("198.18.%d.%d", i>>8, i&255))
		all["blocks/web/"+blockOf(i).String()] = record.Block{Node: id, Sequence: int64(i)}
		a := blockOf(i).Addr().Next()
		for j := range each {
			a = a.Next()
			all[fmt.Sprintf("eps/web/%s/box%d", id, j)] = record.Endpoint{Names: []string{"box"},
				Addresses: []netip.Addr{a}}
		}
	}
	table := all.snapshot()
	d := derive.New("0")
	d.Update(kv.Update{Snapshot: table, Changed: kv.Diff(kv.NewTable(0, nil), table)})
	for name, key := range map[string]string{"name": "eps/web/7/box7", "block": "blocks/web/" + blockOf(7).String()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				networks, _, problems := d.Update(kv.Update{Snapshot: table, Changed: []string{key}})
				if len(networks) != 1 {
					b.Fatal(problems)
				}
			}
		})
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			fresh(table, "0")
		}
	})
}
