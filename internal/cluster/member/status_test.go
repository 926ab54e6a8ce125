package member_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// has waits until the host's consumers have a key.
func (h *host) has(key string) {
	h.Helper()
	for u := range h.seen {
		if _, known := u.Snapshot.Get(key); known {
			return
		}
	}
}

// TestChangesCostNoWrites changes records of one node. The others must not write for that, also when they next check
// what they say about themselves.
func TestChangesCostNoWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two, three := w.three()
	others := []*host{two, three}
	for _, h := range others {
		h.until("it has written what it says about itself", func() bool {
			a, _, err := record.Get[record.Alive](w.store.Snapshot(), record.Key(record.Alives, h.id()))
			return err == nil && len(a.Problems) > 0
		})
	}
	var writes atomic.Int64
	w.mu.Lock()
	for _, h := range others {
		h.committed = func(kv.Txn) { writes.Add(1) }
	}
	w.mu.Unlock()
	last := ""
	for i := range 50 {
		last = record.Key(record.Endpoints, "shop", one.id(), fmt.Sprint("web", i))
		w.put(last, record.Endpoint{Names: []string{fmt.Sprint("web-", i)}})
	}
	for _, h := range others {
		h.has(last)
		before := h.checks.Load()
		h.until("it has checked twice what it says about itself", func() bool { return h.checks.Load() > before+1 })
	}
	if n := writes.Load(); n > 0 {
		t.Errorf("50 changes of one node cost %d writes of two others", n)
	}
}

// asked returns what the host finds about each node when it asks them.
func (h *host) asked() map[string]api.ClusterNodeStatus {
	h.Helper()
	s, err := h.Status(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	h.AskNodes(h.Context(), &s)
	all := map[string]api.ClusterNodeStatus{}
	for _, n := range s.Nodes {
		all[n.Name] = n
	}
	return all
}

// TestAskNodes asks a node that is behind, one that is frozen, and one that does not answer.
func TestAskNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two, three := w.three()
	one.until("all nodes have the same records", func() bool {
		for _, n := range one.asked() {
			if !n.Answered || n.Behind > 0 || n.Frozen != "" {
				return false
			}
		}
		return true
	})
	busy := make(chan struct{})
	w.mu.Lock()
	two.consume = func(kv.Update) { <-busy }
	three.frozen = "etcd was restored from a copy"
	w.mu.Unlock()
	w.put("nets/shop", record.Network{})
	one.has("nets/shop")
	one.until("host2 is behind", func() bool { n := one.asked()["host2"]; return n.Answered && n.Behind > 0 })
	if n := one.asked()["host3"]; !n.Answered || n.Frozen != "etcd was restored from a copy" {
		t.Errorf("host3, which is frozen, is %+v", n)
	}
	close(busy)
	one.until("host2 is not behind any more", func() bool {
		n := one.asked()["host2"]
		return n.Answered && n.Behind == 0
	})
	three.stop()
	w.route("192.0.2.3:7947", "127.0.0.1:1")
	if n := one.asked()["host3"]; n.Answered || n.Frozen != "" {
		t.Errorf("host3, which has ended, is %+v", n)
	}
	s, err := one.Status(t.Context())
	if err != nil || s.Applied < s.LastChange || s.LastChange == 0 {
		t.Errorf("host1 has applied revision %d, and the last change is %d: %v", s.Applied, s.LastChange, err)
	}
}
