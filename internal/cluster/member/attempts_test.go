package member_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/record"
)

// named creates a cluster with a name.
func (h *host) named(name string) error {
	return h.Init(h.Context(), api.ClusterInit{Name: name, ClusterNode: h.node(),
		Etcd: api.EtcdAccess{Endpoints: []string{"https://192.0.2.99:2379"}}})
}

// unanswered creates cluster default while etcd does not answer. The request ends when it waits for etcd.
func (h *host) unanswered() error {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	before := h.client.Lost()
	ended := make(chan error, 1)
	go func() {
		ended <- h.Init(ctx, api.ClusterInit{ClusterNode: h.node(),
			Etcd: api.EtcdAccess{Endpoints: []string{"http://x:1"}}})
	}()
	h.until("the request waits for etcd", func() bool { return h.client.Lost() > before })
	cancel()
	return <-ended
}

// interrupted loses the answer to the creation of cluster default.
func (h *host) interrupted() {
	h.Helper()
	h.client.Set(kvtest.AnswerLost)
	err := h.unanswered()
	if _, created := h.store.Snapshot().Get(record.MetaKey); !errors.Is(err, kv.ErrUnknown) || !created {
		h.Fatalf("init without an answer: %v, and etcd has the cluster: %v", err, created)
	}
}

// TestInitWithAnotherName creates a cluster whose answer is lost, and then one with another name. Etcd
// must not keep the first one.
func TestInitWithAnotherName(t *testing.T) {
	w := newWorld(t)
	one := w.host(1)
	one.interrupted()
	one.client.Set(kvtest.Refused)
	err := one.named("second")
	one.refuses("another name without etcd", err, api.Failed, "leave --force")
	one.client.Set(kvtest.Works)
	if err := one.named("second"); err != nil {
		t.Fatal(err)
	}
	for e := range w.store.Snapshot().Under("") {
		t.Errorf("etcd still has %s of the first cluster", e.Key)
	}
	if s, err := one.Status(t.Context()); err != nil || s.Name != "second" {
		t.Errorf("the cluster is %q, %v", s.Name, err)
	}
}

// TestInitEndsWithLeave creates a cluster whose answer is lost, and then leaves.
func TestInitEndsWithLeave(t *testing.T) {
	w := newWorld(t)
	one := w.host(1)
	one.interrupted()
	one.client.Set(kvtest.Refused)
	two := w.host(2)
	two.refuses("a name that cannot be created", func() error { two.client.Set(kvtest.Refused); return two.init() }(),
		api.Failed, kv.ErrUnavailable.Error())
	if _, err := two.Status(t.Context()); api.CodeOf(err) != api.NotFound {
		t.Errorf("an attempt that etcd did not answer leaves something: %v", err)
	}
	one.client.Set(kvtest.Works)
	notes, err := one.Leave(t.Context(), api.ClusterNodeRequest{Force: true})
	if err != nil || len(notes) > 0 {
		t.Errorf("leave: %q, %v", notes, err)
	}
	for e := range w.store.Snapshot().Under("") {
		t.Errorf("etcd still has %s", e.Key)
	}
}

// TestInitKeepsOthers repeats an attempt after another host has created the cluster.
func TestInitKeepsOthers(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := two.init(); err != nil {
		t.Fatal(err)
	}
	one.client.Set(kvtest.RequestLost)
	if err := one.unanswered(); !errors.Is(err, kv.ErrUnknown) {
		t.Fatal(err)
	}
	one.client.Set(kvtest.Works)
	one.refuses("the name of another cluster", one.init(), api.Conflict, "etcd already has a cluster")
	if err := one.named("second"); err != nil { // nothing is left of the refused attempt
		t.Error(err)
	}
	two.knows("host2")
}

// TestStartFails starts a host whose snapshot cannot be opened. The status says so, and the host is a
// node again when that has been fixed.
func TestStartFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	one.knows("host1")
	one.stop()
	fail := func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		one.openError = err
	}
	fail(errors.New("snapshot.db is damaged: delete it"))
	one.start()
	one.until("the status shows the problem", func() bool {
		s, err := one.Status(t.Context())
		return err == nil && strings.Contains(s.Problem, "snapshot.db is damaged: delete it")
	})
	_, err := one.CreateToken(t.Context(), api.ClusterTokenRequest{})
	one.refuses("a token", err, api.Failed, "snapshot.db is damaged")
	fail(nil)
	one.knows("host1")
}

// TestSkippedUpdates takes the node's record away for some updates. The consumers get none of them, and give up what
// other nodes can take over. Then the next one has all keys that have changed, and the consumers go on.
func TestSkippedUpdates(t *testing.T) {
	w := newWorld(t)
	one := w.host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	one.knows("host1")
	id := one.id()
	key := record.Key(record.Nodes, id)
	w.put(key, nil)
	w.put("while/removed", "1")
	one.until("host1 was removed", func() bool {
		s, _ := one.Status(t.Context())
		return strings.Contains(s.Problem, "was removed")
	})
	w.put("while/removed too", "1")
	one.until("host1 has given up what others can take over", one.released.Load)
	w.put(key, record.Node{ID: id, Name: "host1"})
	deadline := time.After(limit)
	for {
		select {
		case u := <-one.seen:
			if _, known := u.Snapshot.Get(key); !known {
				t.Fatal("the consumers get a snapshot without the node")
			}
			if _, known := u.Snapshot.Get("while/removed"); !known {
				continue
			}
			if !slices.Contains(u.Changed, "while/removed") || !slices.IsSorted(u.Changed) {
				t.Errorf("the update has the changed keys %q", u.Changed)
			}
			if one.released.Load() {
				t.Error("the consumers get an update before they go on")
			}
			return
		case <-deadline:
			t.Fatal("no update after the node is back")
		}
	}
}

// TestAliveIsRepeated changes the node's record while its process writes that it is alive. It must write
// it again, although nothing of it has changed.
func TestAliveIsRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	one.knows("host1")
	id := one.id()
	key := record.Key(record.Alives, id)
	one.until("the node is alive", func() bool { _, known := w.store.Snapshot().Get(key); return known })
	one.stop()
	own, _, err := record.Get[record.Node](w.store.Snapshot(), record.Key(record.Nodes, id))
	if err != nil {
		t.Fatal(err)
	}
	own.Drained = true // all else is as the node writes it: it would correct it, and could not see its own change
	drain := sync.OnceFunc(func() { w.put(record.Key(record.Nodes, id), own) })
	busy := make(chan struct{})
	defer close(busy)
	w.mu.Lock()
	one.committing = func(t kv.Txn) {
		if len(t.Then) > 0 && t.Then[0].Key == key {
			drain()
		}
	}
	one.consume = func(u kv.Update) { // from then on, what the node says about itself does not change
		if n, _, err := record.Get[record.Node](u.Snapshot, record.Key(record.Nodes, id)); err == nil && n.Drained {
			<-busy
		}
	}
	w.mu.Unlock()
	started := time.Now()
	one.start()
	one.until("the node says since when it runs", func() bool {
		a, _, err := record.Get[record.Alive](w.store.Snapshot(), key)
		return err == nil && !a.Since.Before(started)
	})
}

// TestTokenAfterInit creates a token as soon as the cluster exists, as scripts do.
func TestTokenAfterInit(t *testing.T) {
	one := newWorld(t).host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	if _, err := one.CreateToken(t.Context(), api.ClusterTokenRequest{}); err != nil {
		t.Error(err)
	}
}
