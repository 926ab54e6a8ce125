package member_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// put writes a record as another program does.
func (w *world) put(key string, v any) {
	w.Helper()
	change := kv.Change{Key: key}
	if v != nil {
		change.Value = record.Encode(v)
	}
	if _, err := w.store.Client().Commit(w.Context(), kv.Txn{Then: []kv.Change{change}}); err != nil {
		w.Fatal(err)
	}
}

// leftovers returns the keys that name the node, or whose records do.
func (w *world) leftovers(id string) (keys []string) {
	for e := range w.store.Snapshot().Under("") {
		if strings.Contains(string(e.Value), id) || strings.Contains(e.Key, id) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// TestRemoveRunningNode removes a node that still runs. It claims a block and publishes an endpoint at
// each moment of its removal, with a snapshot from before. Nothing of it stays.
func TestRemoveRunningNode(t *testing.T) {
	one, two, _ := newWorld(t).three()
	id := two.id()
	network := model.Network{Name: "web", Driver: model.DriverVXLAN,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}
	if err := block.Create(t.Context(), two, one.store.Snapshot(), network, nil); err != nil {
		t.Fatal(err)
	}
	before := one.store.Snapshot()
	if _, err := block.Claim(t.Context(), two, before, "web", id, 0); err != nil {
		t.Fatal(err)
	}
	one.until("host1 has the block", func() bool {
		return len(block.Own((<-one.seen).Snapshot, "web", id)) == 1
	})
	moments := 0
	one.mu.Lock()
	one.committed = func(kv.Txn) {
		moments++
		for range 2 { // the second claim has another block
			_, _ = block.Claim(t.Context(), two, before, "web", id, 0)
		}
		_, _ = two.Commit(t.Context(), kv.Txn{Then: []kv.Change{ // it may be committed before the removal
			{Key: record.Key(record.Endpoints, "web", id, "box"), Value: record.Encode(record.Endpoint{})}}})
	}
	one.mu.Unlock()
	err := one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2", Force: true})
	one.mu.Lock()
	one.committed = nil
	one.mu.Unlock()
	if keys := one.leftovers(id); err != nil || len(keys) > 0 || moments < 3 {
		t.Errorf("after %d transactions the store still has %v of the removed node: %v", moments, keys, err)
	}
	_, err = two.Commit(t.Context(), kv.Txn{Then: []kv.Change{{Key: "x", Value: []byte("1")}}})
	if !errors.Is(err, member.ErrRemoved) {
		t.Errorf("a removed node writes: %v", err)
	}
	two.refuses("a removed node drains another", two.Drain(t.Context(), api.ClusterNodeRequest{Node: "host1"}),
		api.Failed, "was removed from the cluster")
}

// TestCommitOfDrainedNode commits while the node's own record changes. The condition of the transaction
// decides, not the record.
func TestCommitOfDrainedNode(t *testing.T) {
	w := newWorld(t)
	one := w.host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	one.knows("host1")
	id := one.id()
	for name, test := range map[string]struct {
		condition kv.Condition
		committed bool
	}{"true": {kv.Condition{Key: "y"}, true}, "false": {kv.Condition{Key: "y", Revision: 7}, false}} {
		change := sync.OnceFunc(func() {
			w.put(record.Key(record.Nodes, id), record.Node{ID: id, Name: "host1", Drained: true})
		})
		one.mu.Lock()
		one.committing = func(t kv.Txn) {
			if len(t.Then) > 0 && t.Then[0].Key == "x" {
				change()
			}
		}
		one.mu.Unlock()
		result, err := one.Commit(t.Context(), kv.Txn{If: []kv.Condition{test.condition},
			Then: []kv.Change{{Key: "x", Value: []byte("1")}}})
		if err != nil || result.Committed != test.committed || len(result.Current) > 0 {
			t.Errorf("a condition that is %s: %+v, %v", name, result, err)
		}
	}
}

// TestInterruptedRemoval loses etcd in the middle of a removal. The status shows that, and the command
// can be repeated by the node's name.
func TestInterruptedRemoval(t *testing.T) {
	one, two, three := newWorld(t).three()
	id := two.id()
	one.put(record.Key(record.Keys, "web", id), record.NodeKey{Public: "x"})
	one.mu.Lock()
	one.committed = func(t kv.Txn) {
		if t.Then[0].Key == record.Key(record.Nodes, id) {
			one.client.Set(kvtest.Refused)
		}
	}
	one.mu.Unlock()
	if err := one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2", Force: true}); err == nil {
		t.Fatal("a removal without etcd succeeds")
	}
	three.until("the status shows the removal", func() bool {
		s, err := three.Status(t.Context())
		return err == nil && len(s.Nodes) == 3 &&
			strings.Contains(strings.Join(s.Nodes[2].Problems, ""), "cluster rm host2")
	})
	if err := three.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2"}); err != nil {
		t.Fatal(err)
	}
	three.knows("host1 host3")
	if keys := one.leftovers(id); len(keys) > 0 {
		t.Errorf("the store still has %v of the removed node", keys)
	}
}

// TestLastNodeLeaves lets a host join while the last node leaves. Either the join is refused, or the
// cluster stays with the new node.
func TestLastNodeLeaves(t *testing.T) {
	for name, early := range map[string]bool{"before": true, "while it leaves": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			one, two := w.host(1), w.host(2)
			if err := one.init(); err != nil {
				t.Fatal(err)
			}
			token := one.token(api.ClusterTokenRequest{})
			var joined error
			join := sync.OnceFunc(func() { joined = two.join(token) })
			hook := func(t kv.Txn) {
				if len(t.Then) > 0 && t.Then[0].Key == record.MetaKey {
					join()
				}
			}
			one.mu.Lock()
			if early {
				one.committing = hook
			} else {
				one.committed = hook
			}
			one.mu.Unlock()
			if _, err := one.Leave(t.Context(), api.ClusterNodeRequest{}); err != nil {
				t.Fatal(err)
			}
			if !early {
				two.refuses("join a cluster that is deleted", joined, api.Conflict, "is leaving")
				for e := range w.store.Snapshot().Under("") {
					t.Errorf("the store still has %s", e.Key)
				}
				return
			}
			if joined != nil {
				t.Fatalf("join: %v", joined)
			}
			two.knows("host2")
			three := w.host(3)
			if err := three.join(two.token(api.ClusterTokenRequest{})); err != nil {
				t.Errorf("join the cluster that the first node has left: %v", err)
			}
		})
	}
}

// TestRemove removes a node. Its certificate is refused from then on, and it passes nothing on.
func TestRemove(t *testing.T) {
	one, two, three := newWorld(t).three()
	id := two.id()
	put := func(key string, v []byte) {
		t.Helper()
		if _, err := one.client.Commit(t.Context(), kv.Txn{Then: []kv.Change{{Key: key, Value: v}}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 300 {
		put(fmt.Sprintf("blocks/web/10.0.%d.0/28", n), record.Encode(record.Block{Node: id}))
	}
	put("blocks/web/10.9.0.0/28", record.Encode(record.Block{Node: one.id()}))
	put("eps/web/"+id+"/a", record.Encode(record.Endpoint{}))
	put("reals/web/"+id+"/a", record.Encode(record.Real{}))
	put("last", []byte("x"))
	one.until("host1 has all", func() bool {
		for u := range one.seen {
			if _, known := u.Snapshot.Get("last"); known {
				return true
			}
		}
		return false
	})
	one.until("host2 is alive", func() bool { s, _ := one.Status(t.Context()); return s.Nodes[1].Alive })
	one.refuses("remove a node that is alive", one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2"}),
		api.Conflict, "is alive")
	one.refuses("remove itself", one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host1", Force: true}),
		api.Conflict, "cluster leave")
	if err := one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2", Force: true}); err != nil {
		t.Fatal(err)
	}
	three.knows("host1 host3")
	var keys []string
	for e := range one.store.Snapshot().Under("") {
		if strings.Contains(string(e.Value), id) || strings.Contains(e.Key, id) {
			keys = append(keys, e.Key)
		}
	}
	if _, known := one.store.Snapshot().Get("blocks/web/10.9.0.0/28"); len(keys) > 0 || !known {
		t.Errorf("the store still has %v of the node, and the block of another node: %v", keys, known)
	}
	two.until("host2 notices", func() bool {
		s, _ := two.Status(t.Context())
		return strings.Contains(s.Problem, "was removed from the cluster")
	})
	// The removed host asks with its certificate, which is still valid.
	if err := askAs(two, "192.0.2.3:7947"); err == nil {
		t.Error("a removed node is answered")
	}
	if _, err := two.Leave(t.Context(), api.ClusterNodeRequest{}); err != nil {
		t.Errorf("the removed host leaves: %v", err)
	}
	three.knows("host1 host3")
}

// TestRemoveRace removes a node while another administrator has removed it and a third node has claimed
// one of its blocks and its name.
func TestRemoveRace(t *testing.T) {
	one, two, three := newWorld(t).three()
	id, heir := two.id(), three.id()
	var blocks kv.Txn
	for n := range 120 {
		blocks.Then = append(blocks.Then, kv.Change{Key: fmt.Sprintf("blocks/web/10.0.%d.0/28", 100+n),
			Value: record.Encode(record.Block{Node: id})})
	}
	if _, err := one.client.Commit(t.Context(), blocks); err != nil {
		t.Fatal(err)
	}
	one.until("host1 has the blocks", func() bool {
		_, known := (<-one.seen).Snapshot.Get("blocks/web/10.0.219.0/28")
		return known
	})
	claimed := []kv.Change{
		{Key: "blocks/web/10.0.219.0/28", Value: record.Encode(record.Block{Node: heir})},
		{Key: "names/host2", Value: record.Encode(record.NodeName{Node: heir})}}
	one.mu.Lock()
	claim := sync.OnceFunc(func() {
		_, _ = one.store.Client().Commit(context.Background(), kv.Txn{Then: claimed}) // it has no fault
	})
	one.committed = func(t kv.Txn) {
		if strings.HasPrefix(t.Then[0].Key, record.Blocks) {
			claim()
		}
	}
	one.mu.Unlock()
	_ = one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2", Force: true}) // it may have to be repeated
	for _, c := range claimed {
		if e, _ := one.store.Snapshot().Get(c.Key); string(e.Value) != string(c.Value) {
			t.Errorf("%s of another node has become %q", c.Key, e.Value)
		}
	}
	one.until("the repetition removes the node", func() bool {
		_ = one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2", Force: true})
		return one.names() == "host1 host3"
	})
}
