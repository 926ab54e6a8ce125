package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// maxChanges is how many keys one transaction deletes. etcd allows 128 operations.
const maxChanges = 100

// maxFreed is how many keys one transaction deletes if it compares each with a revision and a value. Commit
// adds a condition.
const maxFreed = (kv.MaxOperations - 1) / 2

// NoRecords is the error of an order for the cluster on a host that has no records of one.
func NoRecords() error {
	return api.Faultf(api.NotFound, "this host has no records of a cluster, or its daemon has just started and not "+
		"read them yet: create a cluster with `fairlead cluster init`, or see `fairlead cluster status`")
}

// NodeName returns the name of a node, its id if the cluster has no such node, or an empty text for no node.
func NodeName(s kv.Snapshot, id string) string {
	if n, known, err := record.Get[record.Node](s, record.Key(record.Nodes, id)); known && err == nil {
		return n.Name
	}
	return id
}

// FindNode returns the node with a name or an id. Returns a Fault with code NotFound that has the names of
// all nodes.
func FindNode(s kv.Snapshot, name string) (record.Node, error) {
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

// FindNodes returns the ids of the nodes with these names or ids, sorted, each once. Returns the error of FindNode.
func FindNodes(s kv.Snapshot, names []string) (ids []string, err error) {
	for _, name := range names {
		n, err := FindNode(s, name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, n.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// NodeNames returns the names of nodes, as NodeName does.
func NodeNames(s kv.Snapshot, ids []string) (names []string) {
	for _, id := range ids {
		names = append(names, NodeName(s, id))
	}
	return names
}

// Have says which names the cluster has below a prefix of records: "it has a, b", or "it has none".
func Have(s kv.Snapshot, prefix string) string {
	var names []string
	for e := range s.Under(prefix) {
		names = append(names, strings.TrimPrefix(e.Key, prefix))
	}
	return "it has " + cmp.Or(strings.Join(names, ", "), "none")
}

// findRemoved returns the node with a name or an id whose removal is not complete, or otherwise the error.
func findRemoved(s kv.Snapshot, name string, otherwise error) (record.Node, error) {
	for id, r := range removalsOf(s) {
		if id == name || r.Name == name {
			return record.Node{ID: id, Name: r.Name}, nil
		}
	}
	return record.Node{}, otherwise
}

// removalsOf returns the nodes whose removal is not complete, by their ids.
func removalsOf(s kv.Snapshot) map[string]record.Removal {
	all := map[string]record.Removal{}
	for e, r := range record.Each[record.Removal](s, record.Removals) {
		all[record.Names(record.Removals, e.Key, 1)[0]] = r
	}
	return all
}

func sortedKeys(nodes map[string]record.Node) []string {
	return slices.SortedFunc(maps.Keys(nodes), func(a, b string) int {
		return strings.Compare(nodes[a].Name+"/"+a, nodes[b].Name+"/"+b)
	})
}

// Drain drains a node, or ends its drain.
func (m *Member) Drain(ctx context.Context, r api.ClusterNodeRequest) error {
	_, snapshot, err := m.inCluster()
	if err != nil {
		return err
	}
	n, err := FindNode(snapshot, r.Node)
	if err != nil {
		return err
	}
	key := record.Key(record.Nodes, n.ID)
	for {
		have, err := kv.Read(ctx, m, key)
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
		result, err := commit(ctx, m, kv.Txn{If: []kv.Condition{{Key: key, Revision: e.Revision}},
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
	_, snapshot, err := m.inCluster()
	if err != nil {
		return err
	}
	n, err := FindNode(snapshot, r.Node)
	if err != nil {
		if n, err = findRemoved(snapshot, r.Node, err); err != nil {
			return err
		}
	}
	if n.ID == m.self().Node {
		return api.Faultf(api.Conflict, "node %s is this host: use `fairlead cluster leave`", n.Name)
	}
	if _, alive := snapshot.Get(record.Key(record.Alives, n.ID)); alive && !r.Force {
		return api.Faultf(api.Conflict,
			"node %s is alive: run `fairlead cluster leave` on it; if that is not possible, "+
				"stop it and use --force: its addresses are given to others", n.Name)
	}
	revision, err := m.deleteNode(ctx, m, n)
	if err != nil {
		return fmt.Errorf("remove node %s: %w: repeat the command", n.Name, err)
	}
	m.awaitOwn(ctx, revision)
	return nil
}

// deleteNode deletes what belongs to a node. At first it deletes the node's record, on which all
// transactions of the node depend: the node writes nothing from then on. A record of the removal
// remains until all is deleted, so an interrupted removal can be repeated. It returns the store's
// revision afterwards.
func (m *Member) deleteNode(ctx context.Context, store kv.Committer, n record.Node) (int64, error) {
	revision, err := expel(ctx, store, n)
	if err != nil {
		return 0, err
	}
	s, err := m.snapshotAt(ctx, revision)
	if err != nil {
		return 0, err
	}
	for part := range slices.Chunk(keysOf(s, n.ID), maxFreed) {
		var t kv.Txn
		for _, key := range part {
			t.Then = append(t.Then, kv.Change{Key: key})
			if e, _ := s.Get(key); strings.HasPrefix(key, record.Blocks) || strings.HasPrefix(key, record.Moves) {
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
	return deleteName(ctx, store, n)
}

// expel replaces the record of a node with that of its removal. It returns the revision.
func expel(ctx context.Context, store kv.Committer, n record.Node) (int64, error) {
	key := record.Key(record.Nodes, n.ID)
	for {
		have, err := kv.Read(ctx, store, key)
		if err != nil {
			return 0, err
		}
		result, err := commit(ctx, store, kv.Txn{If: []kv.Condition{{Key: key, Revision: have[key].Revision}},
			Then: []kv.Change{{Key: key}, {Key: record.Key(record.Alives, n.ID)},
				{Key: record.Key(record.Removals, n.ID), Value: record.Encode(record.Removal{Name: n.Name})}}})
		if err != nil || result.Committed {
			return result.Revision, err
		}
	}
}

// deleteName deletes the name of a node, unless another one has it, and the record of the removal.
func deleteName(ctx context.Context, store kv.Committer, n record.Node) (int64, error) {
	t := kv.Txn{Then: []kv.Change{{Key: record.Key(record.Removals, n.ID)}}}
	key := record.Key(record.NodeNames, n.Name)
	have, err := kv.Read(ctx, store, key)
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
	for e, b := range record.Each[record.Block](s, record.Blocks) {
		if b.Node == node {
			keys = append(keys, e.Key)
		}
	}
	for e, m := range record.Each[record.Move](s, record.Moves) {
		if m.Node == node {
			keys = append(keys, e.Key)
		}
	}
	for _, prefix := range []string{record.Keys, record.Endpoints, record.Reals, record.Selected} {
		for e := range s.Under(prefix) {
			if names := record.Names(prefix, e.Key, 3); len(names) > 1 && names[1] == node {
				keys = append(keys, e.Key)
			}
		}
	}
	return keys
}
