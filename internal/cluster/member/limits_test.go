package member_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// TestPlaces opens connections from many hosts. They must not take the places of nodes, and a /64 of IPv6
// has those of one host.
func TestPlaces(t *testing.T) {
	node := netip.MustParseAddr("192.0.2.7")
	places := member.NewPlaces(func(a netip.Addr) bool { return a == node })
	all := 0
	for i := range 10_000 {
		if _, ok := places(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i))); ok {
			all++
		}
	}
	if all != 8 {
		t.Errorf("one /64 has %d connections", all)
	}
	var leave func()
	for i := range 10_000 {
		done, ok := places(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}))
		if ok {
			all, leave = all+1, done
		}
	}
	if all != 128 {
		t.Errorf("all strangers have %d connections", all)
	}
	for n := range 33 {
		if _, ok := places(netip.MustParseAddr("::ffff:192.0.2.7")); ok != (n < 32) {
			t.Errorf("connection %d of a node: %v", n+1, ok)
		}
	}
	stranger := netip.MustParseAddr("203.0.113.1")
	if _, ok := places(stranger); ok {
		t.Error("a stranger has a place that is taken")
	}
	leave()
	leave()
	if _, ok := places(stranger); !ok {
		t.Error("a stranger does not get a free place")
	}
	if _, ok := places(stranger); ok {
		t.Error("a place that was left once is free twice")
	}
}

// TestUnknownTokens joins with many unknown tokens. They cost few transactions, and a host with a token
// that the node knows joins meanwhile.
func TestUnknownTokens(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{})
	reads := 0
	w.mu.Lock()
	w.still = time.Now() // the budget of requests does not grow meanwhile
	one.committing = func(t kv.Txn) {
		if len(t.Then) == 0 {
			reads++
		}
	}
	w.mu.Unlock()
	wrong, err := trust.ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	crowded := false
	for range 30 {
		wrong.Secret[0]++ // never the byte of the known token
		err := two.join(wrong.String())
		crowded = crowded || api.CodeOf(err) == api.Failed
	}
	if reads > 10 || !crowded {
		t.Errorf("30 unknown tokens cost %d reads of etcd, and some were refused: %v", reads, crowded)
	}
	if err := two.join(token); err != nil {
		t.Errorf("a known token: %v", err)
	}
}

// TestAddressOfAnotherNode joins with the address of another node.
func TestAddressOfAnotherNode(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{})
	node := two.node()
	node.Addresses = append(node.Addresses[:0:0], netip.MustParseAddr("192.0.2.1"))
	two.refuses("an address that is taken", two.Join(t.Context(), api.ClusterJoin{Token: token, ClusterNode: node}),
		api.Conflict, "node host1 already has the address 192.0.2.1")
	if _, known := w.store.Snapshot().Get(record.Key(record.NodeNames, "host2")); known {
		t.Error("the node is admitted")
	}
	if err := two.join(token); err != nil { // the token was not used
		t.Error(err)
	}
}
