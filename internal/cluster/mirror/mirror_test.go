package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"fairlead/internal/api"
	"fairlead/internal/boltfile"
	"fairlead/internal/cluster/etcd"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/mirror"
	"fairlead/internal/cluster/record"
	etcdtest "fairlead/test/etcd"
	"fairlead/test/place"
)

// world is an etcd, and the namespace in which its servers and clients are.
type world struct {
	*testing.T
	*etcdtest.Cluster
	in place.Place
	// moved, if it is not empty, is the address that clients reach instead of the servers'.
	moved atomic.Value
}

func newWorld(t *testing.T, members int) *world {
	t.Helper()
	cluster, ns := etcdtest.Alone(t, members)
	return &world{T: t, Cluster: cluster, in: ns.Do}
}

// node is a node with its mirror.
type node struct {
	*mirror.Mirror
	t       *testing.T
	updates <-chan kv.Update
	last    kv.Snapshot
	stop    func()
}

// node starts a mirror that ends with the test.
func (w *world) node(cluster, path string) *node {
	w.Helper()
	dial := func(_ context.Context, address string) (net.Conn, error) {
		if moved, ok := w.moved.Load().(string); ok && moved != "" {
			address = moved
		}
		return place.Dial(w.in, "tcp", address, time.Second)
	}
	store, err := etcd.Open(etcd.Config{Access: api.EtcdAccess{Endpoints: w.Endpoints()}, Cluster: "test", Dial: dial,
		Silence: time.Second})
	if err != nil {
		w.Fatal(err)
	}
	m, err := mirror.Open(mirror.Config{Source: store, Path: path, Cluster: cluster, Retry: 20 * time.Millisecond})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{Mirror: m, t: w.T, updates: m.Updates(ctx)}
	ended := false
	n.stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		for range n.updates { // until it is closed
		}
		if err := m.Close(); err != nil {
			w.Error(err)
		}
	}
	w.Cleanup(n.stop)
	return n
}

// put puts a value until it is committed, and returns the revision.
func (n *node) put(key string, value []byte) int64 {
	n.t.Helper()
	for end := time.Now().Add(place.Timeout); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		result, err := n.Commit(ctx, kv.Txn{Then: []kv.Change{{Key: key, Value: value}}})
		cancel()
		if err == nil {
			return result.Revision
		}
		if time.Now().After(end) {
			n.t.Fatal(err)
		}
	}
}

// swap changes a key that has the revision. A server that was stopped may execute a request long after
// it was repeated elsewhere: without the condition, that would undo later changes.
func (n *node) swap(key string, value []byte, revision int64) int64 {
	n.t.Helper()
	for end := time.Now().Add(place.Timeout); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		result, err := n.Commit(ctx, kv.Txn{If: []kv.Condition{{Key: key, Revision: revision}},
			Then: []kv.Change{{Key: key, Value: value}}})
		cancel()
		switch {
		case err == nil && result.Committed:
			return result.Revision
		case err == nil && len(result.Current) == 1 && string(result.Current[0].Value) == string(value):
			return result.Current[0].Revision // by an attempt without an answer
		case err == nil || time.Now().After(end):
			n.t.Fatalf("%s is %v at revision %d: %v", key, result.Current, revision, err)
		}
	}
}

// until receives updates until one has the key with the value. Revisions must never fall.
func (n *node) until(key, value string) {
	n.t.Helper()
	has := func() bool {
		if n.last == nil {
			return false
		}
		e, ok := n.last.Get(key)
		return ok && string(e.Value) == value
	}
	for deadline := time.After(place.Timeout); !has(); {
		select {
		case u := <-n.updates:
			if n.last != nil && u.Snapshot.Revision() < n.last.Revision() {
				n.t.Fatalf("the revision falls from %d to %d", n.last.Revision(), u.Snapshot.Revision())
			}
			n.last = u.Snapshot
		case <-deadline:
			n.t.Fatalf("%s did not become %q; health %+v", key, value, n.Health(context.Background(), kv.Txn{}))
		}
	}
}

// untilFrozen waits until the mirror is frozen for a reason with the text. It must deliver nothing.
func (n *node) untilFrozen(text string) {
	n.t.Helper()
	for end := time.Now().Add(place.Timeout); ; time.Sleep(50 * time.Millisecond) {
		health := n.Health(context.Background(), kv.Txn{})
		if strings.Contains(health.Frozen, text) && text != "" || text == "" && health.Frozen == "" {
			break
		}
		if time.Now().After(end) {
			n.t.Fatalf("the mirror is frozen because %q, want %q", health.Frozen, text)
		}
	}
	if text == "" {
		return
	}
	select {
	case u := <-n.updates:
		if len(u.Changed) > 0 {
			n.t.Fatalf("the frozen mirror delivers %v", u.Changed)
		}
	default:
	}
}

// fill makes a cluster with some nodes.
func (n *node) fill(nodes int) {
	n.put(record.MetaKey, record.Encode(record.Meta{ID: "one", Name: "test", Format: record.Format}))
	for i := range nodes {
		id := fmt.Sprint("n", i)
		n.put(record.Nodes+id, record.Encode(record.Node{ID: id, Name: id}))
	}
}

// TestConform checks that a mirror of a real etcd behaves like the store for tests.
func TestConform(t *testing.T) {
	t.Parallel()
	kvtest.Conform(t, func(t *testing.T) (one, two kvtest.Node) {
		t.Parallel()
		w := newWorld(t, 1)
		a, b := w.node("", ""), w.node("", "")
		return kvtest.Node{Committer: a, Updates: a.updates}, kvtest.Node{Committer: b, Updates: b.updates}
	})
}

// TestServersFail follows three servers while one after the other is killed, stopped and cut off from
// its clients, and history is deleted meanwhile.
func TestServersFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	a, b := w.node("", ""), w.node("", "")
	a.fill(3)
	step, revision := 0, int64(0)
	check := func() {
		t.Helper()
		step++
		revision = a.swap("step", fmt.Append(nil, step), revision)
		for _, n := range []*node{a, b} {
			n.until("step", fmt.Sprint(step))
		}
	}
	check()
	leader := w.Leader()
	leader.Kill()
	check()
	leader.Start()
	for _, m := range w.Members {
		m.Stop()
		check()
		m.Continue()
	}
	for _, d := range []etcdtest.Direction{etcdtest.ToIt, etcdtest.FromIt} {
		m := w.Members[step%3]
		m.CutClients(d)
		check()
		m.Heal()
	}
	w.Compact()
	check()
}

// TestCompacted cuts a node off from the only server while keys are changed and deleted and the
// history is deleted. The node must then know all changes.
func TestCompacted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.node("", "")
	a.fill(3)
	a.put("deleted", []byte("1"))
	a.until("deleted", "1")
	client := etcdtest.Client(t, w.Members[0])
	w.Members[0].Kill()
	w.Members[0].Start()
	w.Leader()
	for _, key := range []string{"changed", "added"} {
		if _, err := client.Put(t.Context(), "/fairlead/v1/test/"+key, "2"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Delete(t.Context(), "/fairlead/v1/test/deleted"); err != nil {
		t.Fatal(err)
	}
	w.Compact()
	a.put("end", []byte("1"))
	a.until("end", "1")
	if e, ok := a.last.Get("deleted"); ok {
		t.Errorf("the snapshot still has %v", e)
	}
	a.until("added", "2")
}

// TestRestored restores an old copy, wipes etcd, and brings another cluster: each freezes the mirror,
// across a restart without etcd.
func TestRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	path := filepath.Join(t.TempDir(), "cluster.db")
	setup := w.node("", "")
	setup.fill(4)
	saved := w.Save()
	setup.put("after", []byte("1"))
	n := w.node("one", path)
	n.until("after", "1")
	newer := w.Save()

	w.Restore(saved)
	n.untilFrozen("restored from a copy")
	_, err := n.Commit(t.Context(), kv.Txn{Then: []kv.Change{{Key: record.MetaKey}}})
	if !errors.Is(err, kv.ErrFrozen) {
		t.Errorf("a frozen mirror commits a transaction: %v", err)
	}
	for i := range 5 { // the revision passes the known one
		setup.put("other", fmt.Append(nil, i))
	}
	n.untilFrozen("restored from a copy")

	n.stop()
	n = w.node("one", path)
	n.until("after", "1")
	n.untilFrozen("restored from a copy")
	w.Restore(newer)
	n.untilFrozen("")

	w.Wipe()
	n.untilFrozen("not reached")
	if err := n.Accept(t.Context()); err == nil || !strings.Contains(err.Error(), "no records of the cluster") {
		t.Errorf("an empty etcd is accepted: %v", err)
	}
	for i := range 20 {
		setup.put("other", fmt.Append(nil, i))
	}
	n.untilFrozen("restored from a copy")
	if err := n.Accept(t.Context()); err == nil || !strings.Contains(err.Error(), "no records of the cluster") {
		t.Errorf("an etcd without the cluster is accepted: %v", err)
	}
	w.Restore(saved)
	n.untilFrozen("restored from a copy")
	if err := n.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.After(place.Timeout); ; {
		select {
		case u := <-n.updates:
			if _, ok := u.Snapshot.Get("after"); ok || !slices.Contains(u.Changed, "after") {
				continue // that of the file
			}
		case <-deadline:
			t.Fatal("no update after Accept")
		}
		break
	}
	n.last = nil
	setup.put("end", []byte("1"))
	n.until("end", "1")
}

// TestRestoredBeforeDeletion restores a copy that differs from the known records only by an entry that
// was deleted after the copy was made.
func TestRestoredBeforeDeletion(t *testing.T) {
	w := newWorld(t, 1)
	setup := w.node("", "")
	setup.fill(2)
	setup.put("deleted", []byte("1"))
	n := w.node("one", filepath.Join(t.TempDir(), "cluster.db"))
	n.until("deleted", "1")
	saved := w.Save()
	setup.put("deleted", nil)
	for ok := true; ok; _, ok = n.last.Get("deleted") {
		n.last = (<-n.updates).Snapshot
	}
	w.Restore(saved)
	n.untilFrozen("not reached")
}

// TestOtherEtcd brings another etcd to the known address, with the same records at the same
// revisions. Transactions fail, and the mirror is frozen, also after a restart, until Accept.
func TestOtherEtcd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	other := etcdtest.Start(t, []etcdtest.Spot{{Host: "127.0.0.9", In: w.in}})
	meta := string(record.Encode(record.Meta{ID: "one", Name: "test", Format: record.Format}))
	put := func(c *etcdtest.Cluster, key, value string) {
		t.Helper()
		if _, err := etcdtest.Client(t, c.Members[0]).Put(t.Context(), "/fairlead/v1/test/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*etcdtest.Cluster{w.Cluster, other} {
		put(c, record.MetaKey, meta)
		put(c, "a", "1")
	}
	path := filepath.Join(t.TempDir(), "cluster.db")
	n := w.node("one", path)
	n.until("a", "1")

	w.Members[0].Kill()
	w.moved.Store("127.0.0.9:2379")
	for end := time.Now().Add(place.Timeout); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := n.Commit(ctx, kv.Txn{Then: []kv.Change{{Key: "b", Value: []byte("1")}}})
		cancel()
		if errors.Is(err, kv.ErrFrozen) || errors.Is(err, kv.ErrOtherEtcd) &&
			!errors.Is(err, kv.ErrUnknown) && !errors.Is(err, kv.ErrUnavailable) {
			break
		}
		if err == nil || time.Now().After(end) {
			t.Fatalf("a transaction that another etcd has answered has the error %v", err)
		}
	}
	n.untilFrozen("another etcd")
	n.stop()
	n = w.node("one", path)
	n.until("a", "1")
	n.untilFrozen("another etcd")
	put(other, "a", "2")
	if err := n.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.until("a", "2")

	w.moved.Store("")
	w.Members[0].Start()
	other.Members[0].Kill()
	n.untilFrozen("another etcd")
}

// TestNodesReplaced replaces most nodes while a host is off. The store is the same one, so the host follows it.
func TestNodesReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	setup := w.node("", "")
	setup.fill(4)
	setup.put("a", []byte("1"))
	path := filepath.Join(t.TempDir(), "cluster.db")
	n := w.node("one", path)
	n.until("a", "1")
	n.stop()
	for i := range 3 {
		setup.put(record.Nodes+fmt.Sprint("n", i), nil)
		setup.put(record.Nodes+fmt.Sprint("m", i), record.Encode(record.Node{ID: fmt.Sprint("m", i)}))
	}
	setup.put("a", []byte("2"))
	n = w.node("one", path)
	n.until("a", "2")
}

// TestNewerFormat gives the cluster records of a format that this version does not know. The mirror delivers none of
// them, neither from etcd nor from its file, until the format is a known one again.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	setup := w.node("", "")
	setup.fill(2)
	setup.put("a", []byte("1"))
	path := filepath.Join(t.TempDir(), "cluster.db")
	n := w.node("one", path)
	n.until("a", "1")
	newer := record.Encode(record.Meta{ID: "one", Name: "test", Format: record.Format + 1})
	setup.put(record.MetaKey, newer)
	setup.put("a", []byte("2"))
	n.untilFrozen("install the version of the other nodes")
	if err := n.Accept(t.Context()); err == nil || !strings.Contains(err.Error(), "records of format 2") {
		t.Errorf("a newer format is accepted: %v", err)
	}
	n.stop()

	w.Members[0].Kill()
	writeMeta(t, path, newer)
	n = w.node("one", path)
	if why := n.Frozen(); !strings.Contains(why, "records of format 2") {
		t.Errorf("with a newer file the mirror is frozen because %q", why)
	}
	w.Members[0].Start()
	n.untilFrozen("records of format 2")
	setup.put(record.MetaKey, record.Encode(record.Meta{ID: "one", Name: "test", Format: record.Format}))
	n.until("a", "2")
}

// writeMeta replaces the cluster's meta in a file.
func writeMeta(t *testing.T, path string, value []byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		table, key := []byte("cluster entries"), []byte(record.MetaKey)
		was, err := boltfile.Content(table, key, tx.Bucket(table).Get(key))
		if err != nil {
			return err
		}
		return boltfile.Put(tx, table, key, slices.Concat(was[:8], value))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestWithoutEtcd starts a mirror while etcd is away. It must deliver the last snapshot.
func TestWithoutEtcd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	path := filepath.Join(t.TempDir(), "cluster.db")
	n := w.node("one", path)
	n.fill(3)
	n.put("a", []byte("1"))
	n.until("a", "1")
	n.stop()
	w.Members[0].Kill()
	n = w.node("one", path)
	n.until("a", "1")
	health := n.Health(t.Context(), kv.Txn{})
	if health.Connected || health.Frozen != "" || health.Servers[0].Problem == "" {
		t.Errorf("the health without etcd is %+v", health)
	}
	w.Members[0].Start()
	n.put("a", []byte("2"))
	n.until("a", "2")
	n.stop()
	other := w.node("two", path)
	other.untilFrozen("another cluster")
}
