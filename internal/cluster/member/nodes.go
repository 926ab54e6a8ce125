package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// maxChanges is how many keys one transaction deletes. etcd allows 128 operations.
const maxChanges = 100

// maxFreed is how many keys one transaction deletes if it compares each with a revision and a value.
const maxFreed = kv.MaxOperations / 2

// findNode returns the node with a name or an id.
func findNode(s kv.Snapshot, name string) (record.Node, error) {
	nodes := nodesOf(s)
	var names []string
	for _, id := range sortedKeys(nodes) {
		if n := nodes[id]; id == name || n.Name == name {
			return n, nil
		}
		names = append(names, nodes[id].Name)
	}
	return record.Node{}, api.Faultf(api.NotFound, "the cluster has no node %q: it has %s", name,
		strings.Join(names, ", "))
}

func sortedKeys(nodes map[string]record.Node) []string {
	return slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		return strings.Compare(nodes[a].Name+"/"+a, nodes[b].Name+"/"+b)
	})
}

// Drain drains a node, or ends its drain.
func (m *Member) Drain(ctx context.Context, r api.ClusterNodeRequest) error {
	store, snapshot, err := m.inCluster()
	if err != nil {
		return err
	}
	n, err := findNode(snapshot, r.Node)
	if err != nil {
		return err
	}
	key := record.Key(record.Nodes, n.ID)
	for {
		have, err := current(ctx, store, key)
		if err != nil {
			return fmt.Errorf("drain node %s: %w", n.Name, err)
		}
		e, known := have[key]
		if !known {
			return api.Faultf(api.NotFound, "drain node %s: it was removed meanwhile", n.Name)
		}
		now, err := record.Decode[record.Node](e)
		if err != nil || now.Drained == !r.Undo {
			return err
		}
		now.Drained = !r.Undo
		result, err := commit(ctx, store, kv.Txn{If: []kv.Condition{{Key: key, Revision: e.Revision}},
			Then: []kv.Change{{Key: key, Value: record.Encode(now)}}})
		if err != nil {
			return fmt.Errorf("drain node %s: %w", n.Name, err)
		}
		if result.Committed {
			m.awaitOwn(ctx, result.Revision)
			return nil
		}
	}
}

// Remove removes another node with its blocks, endpoints and real servers. Its certificate is refused
// from then on. It can be repeated if it was interrupted.
func (m *Member) Remove(ctx context.Context, r api.ClusterNodeRequest) error {
	store, snapshot, err := m.inCluster()
	if err != nil {
		return err
	}
	n, err := findNode(snapshot, r.Node)
	if err != nil {
		return err
	}
	if n.ID == m.self().Node {
		return api.Faultf(api.Conflict, "node %s is this host: use `fairlead cluster leave`", n.Name)
	}
	if _, alive := snapshot.Get(record.Key(record.Alives, n.ID)); alive && !r.Force {
		return api.Faultf(api.Conflict,
			"node %s is alive: run `fairlead cluster leave` on it; if that is not possible, "+
				"stop it and use --force: its addresses are given to others", n.Name)
	}
	revision, err := deleteNode(ctx, store, snapshot, n)
	if err != nil {
		return fmt.Errorf("remove node %s: %w: repeat the command", n.Name, err)
	}
	m.awaitOwn(ctx, revision)
	return nil
}

// deleteNode deletes what belongs to a node: at first what it holds, at last its name and its
// record. So an interrupted removal can be repeated. It returns the store's revision afterwards.
func deleteNode(ctx context.Context, store kv.Committer, s kv.Snapshot, n record.Node) (int64, error) {
	keys := keysOf(s, n.ID)
	for part := range slices.Chunk(keys, maxFreed) {
		var t kv.Txn
		for _, key := range part {
			t.Then = append(t.Then, kv.Change{Key: key})
			if e, _ := s.Get(key); strings.HasPrefix(key, record.Blocks) {
				t.If = append(t.If, kv.Condition{Key: key, Revision: e.Revision, Value: e.Value})
			}
		}
		result, err := commit(ctx, store, t)
		if err == nil {
			err = changed(result)
		}
		if err != nil {
			return 0, err
		}
	}
	t := kv.Txn{Then: []kv.Change{{Key: record.Key(record.Alives, n.ID)}, {Key: record.Key(record.Nodes, n.ID)}}}
	key := record.Key(record.NodeNames, n.Name)
	have, err := current(ctx, store, key)
	if err != nil {
		return 0, err
	}
	if name, err := record.Decode[record.NodeName](have[key]); err == nil && name.Node == n.ID {
		t.If = append(t.If, kv.Condition{Key: key, Revision: have[key].Revision})
		t.Then = append(t.Then, kv.Change{Key: key})
	}
	result, err := commit(ctx, store, t)
	if err == nil {
		err = changed(result)
	}
	return result.Revision, err
}

// changed returns an error if a transaction was not committed, because others have changed its keys, or
// because its first answer was lost.
func changed(r kv.Result) error {
	if r.Committed {
		return nil
	}
	return errors.New("its records have changed meanwhile")
}

// keysOf returns the keys of what a node holds.
func keysOf(s kv.Snapshot, node string) (keys []string) {
	for e := range s.Under(record.Blocks) {
		if b, err := record.Decode[record.Block](e); err == nil && b.Node == node {
			keys = append(keys, e.Key)
		}
	}
	for _, prefix := range []string{record.Keys, record.Endpoints, record.Reals} {
		for e := range s.Under(prefix) {
			if names := record.Names(prefix, e.Key, 3); len(names) > 1 && names[1] == node {
				keys = append(keys, e.Key)
			}
		}
	}
	return keys
}

// Leave ends the membership of this host: it deletes the node's records, everything that came from
// the cluster, and the node's keys. The last node deletes the whole cluster. It can be repeated.
func (m *Member) Leave(ctx context.Context, r api.ClusterNodeRequest) (notes []string, err error) {
	m.orders.Lock()
	defer m.orders.Unlock()
	m.setLeaving(true)
	defer m.setLeaving(false)
	f := m.self()
	switch f.Phase {
	case phaseNone:
		return []string{"this host belongs to no cluster: nothing to do"}, nil
	case phaseMember, phaseLeaving:
		if notes, err = m.leaveStore(ctx, f, r.Force); err != nil {
			return nil, err
		}
	default:
		if !r.Force {
			return nil, f.refuseOther(phaseNone)
		}
		notes = []string{fmt.Sprintf(
			"if the cluster has a node %s, remove it on another node with `fairlead cluster rm "+
				"%s`", f.Name, f.Name)}
	}
	f.Phase = phaseLeaving
	if err := m.set(f); err != nil {
		return notes, err
	}
	m.stop()
	for _, c := range m.cfg.Consumers {
		err = errors.Join(err, c.Leave())
	}
	if err != nil {
		return notes, fmt.Errorf("leave the cluster: %w: repeat the command", err)
	}
	return notes, m.forget(f)
}

func (m *Member) setLeaving(leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaving = leaving
}

// forget deletes the directory.
func (m *Member) forget(f file) error {
	if err := os.RemoveAll(m.cfg.Dir); err != nil {
		return fmt.Errorf("delete the cluster's files: %w", err)
	}
	m.mu.Lock()
	m.file, m.snapshot, m.problems = file{}, nil, nil
	m.mu.Unlock()
	if m.cfg.Changed != nil {
		m.cfg.Changed()
	}
	m.cfg.Log.Info("left cluster", "name", f.ClusterName)
	return nil
}

// leaveStore deletes the node's records in the store.
func (m *Member) leaveStore(ctx context.Context, f file, force bool) (notes []string, err error) {
	if attached := m.cfg.Attached(); len(attached) > 0 && !force {
		return nil, api.Faultf(api.Conflict,
			"leave the cluster: %s attached to networks of the cluster: detach them, or "+
				"use --force", are(attached))
	}
	store, snapshot, err := m.inCluster()
	if err == nil {
		resume := m.release(ctx)
		if err = m.deleteSelf(ctx, store, snapshot, f, force); err != nil && !force {
			resume()
		}
	}
	if err != nil && (!force || api.CodeOf(err) == api.Conflict) {
		return nil, fmt.Errorf("leave the cluster: %w; with --force this host leaves, and another node removes it", err)
	}
	if err != nil {
		notes = append(notes, fmt.Sprintf(
			"etcd still has this node: remove it on another node with `fairlead cluster rm %s`",
			f.Name))
	}
	return notes, nil
}

// are returns "a, b and 2 more are".
func are(names []string) string {
	const shown = 5
	switch {
	case len(names) == 1:
		return names[0] + " is"
	case len(names) > shown:
		return fmt.Sprintf("%s and %d more are", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ") + " are"
}

// deleteSelf deletes this node's records, or all records if this is the last node.
func (m *Member) deleteSelf(ctx context.Context, store kv.Committer, s kv.Snapshot, f file, force bool) error {
	nodes := nodesOf(s)
	if len(nodes) > 1 || len(nodes) == 1 && nodes[f.Node].ID == "" {
		_, err := deleteNode(ctx, store, s, record.Node{ID: f.Node, Name: f.Name})
		return err
	}
	var keys []string
	for e := range s.Under("") {
		if shared := strings.HasPrefix(e.Key, record.Networks) || strings.HasPrefix(e.Key, record.Services) ||
			strings.HasPrefix(e.Key, record.Addresses); shared && !force {
			return api.Faultf(api.Conflict,
				"this is the last node, and the cluster still has %s: remove its networks, "+
					"services and addresses, or use --force", e.Key)
		}
		if e.Key != record.MetaKey {
			keys = append(keys, e.Key)
		}
	}
	keys = append(keys, record.MetaKey) // at last, so that it can be repeated
	for part := range slices.Chunk(keys, maxChanges) {
		var t kv.Txn
		for _, key := range part {
			t.Then = append(t.Then, kv.Change{Key: key})
		}
		if _, err := commit(ctx, store, t); err != nil {
			return err
		}
	}
	return nil
}
