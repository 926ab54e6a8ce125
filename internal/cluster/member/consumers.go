package member

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// ErrRemoved is the error of a transaction of a host that was removed from the cluster.
var ErrRemoved = errors.New("this host was removed from the cluster: run `fairlead cluster leave` on it")

// Commit commits a transaction of this node, on condition that the cluster has the node: a node that
// was removed writes nothing, also if it does not know that yet. The node's own condition is not in the
// Result. Returns kv.ErrFrozen (errors.Is) if this host may not act as the node, ErrRemoved if the cluster does not have
// the node, and kv.ErrUnavailable also if the host belongs to no cluster or has no snapshot yet.
func (m *Member) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	m.mu.Lock()
	store, snapshot, key := m.store, m.snapshot, record.Key(record.Nodes, m.file.Node)
	m.mu.Unlock()
	if store == nil || snapshot == nil {
		return kv.Result{}, fmt.Errorf("commit transaction: %w", kv.ErrUnavailable)
	}
	if err := (standing{m}).permitted(); err != nil {
		return kv.Result{}, err
	}
	if len(t.Then) == 0 || slices.ContainsFunc(t.If, func(c kv.Condition) bool { return c.Key == key }) {
		return store.Commit(ctx, t)
	}
	for {
		own, known := snapshot.Get(key)
		if !known {
			return kv.Result{}, fmt.Errorf("commit transaction: %w", ErrRemoved)
		}
		result, err := store.Commit(ctx, kv.Txn{Then: t.Then,
			If: append(slices.Clone(t.If), kv.Condition{Key: key, Revision: own.Revision})})
		if err != nil || result.Committed {
			return result, err
		}
		newest := kv.NewTable(result.Revision, slices.Clone(result.Current))
		result.Current = slices.DeleteFunc(result.Current, func(e kv.Entry) bool { return e.Key == key })
		if !t.Holds(newest) {
			return result, nil
		}
		if err := (standing{m}).stillActs(newest, key); err != nil {
			return kv.Result{}, err
		}
		snapshot = newest // only the node's record differs: it was drained, for example
	}
}

// stillActs returns an error that wraps kv.ErrFrozen if a newer record of the node than that of the snapshot names
// another host.
func (m standing) stillActs(newest kv.Snapshot, key string) error {
	n, known, err := record.Get[record.Node](newest, key)
	if err != nil || !known {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if why := m.host.frozen(n); why != "" {
		return fmt.Errorf("commit transaction: %w: %s", kv.ErrFrozen, why)
	}
	return nil
}

// Box returns what encrypts the cluster's values for a purpose. Returns an error if the host belongs to
// no cluster.
func (m *Member) Box(purpose string) (*trust.Box, error) {
	f := m.self()
	return trust.NewBox(f.ClusterKey, f.Cluster, purpose)
}

// Recall returns the identity of the node whose membership is in a directory, and its box for a purpose,
// without a Member. Its id is empty if the host belongs to no cluster.
func Recall(dir, purpose string) (Self, *trust.Box, error) {
	f, err := readFile(dir)
	if err != nil || f.Phase != phaseMember {
		return Self{}, nil, err
	}
	box, err := trust.NewBox(f.ClusterKey, f.Cluster, purpose)
	return Self{f.Cluster, f.Node, f.Name}, box, err
}

// CommitAnyway commits a transaction without the condition of Commit, so that a host that was removed can
// still give up what other nodes wait for. It must have conditions on the records that it changes. Returns
// kv.ErrFrozen (errors.Is) if this host may not act as its node.
func (m *Member) CommitAnyway(ctx context.Context, t kv.Txn) (kv.Result, error) {
	m.mu.Lock()
	store := m.store
	m.mu.Unlock()
	if store == nil {
		return kv.Result{}, fmt.Errorf("commit transaction: %w", kv.ErrUnavailable)
	}
	if err := (standing{m}).permitted(); err != nil {
		return kv.Result{}, err
	}
	return store.Commit(ctx, t)
}
