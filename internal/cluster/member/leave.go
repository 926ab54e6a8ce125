package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

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
	case phaseLeaving: // etcd has nothing of this host any more
	case phaseMember:
		if notes, err = m.leaveStore(ctx, f, r.Force); err != nil {
			return nil, err
		}
	default:
		if !r.Force {
			return nil, f.refuseOther(phaseNone)
		}
		notes = abandon(ctx, m.cfg, f)
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
	if err := m.forget(); err != nil {
		return notes, err
	}
	m.cfg.Log.Info("left cluster", "name", f.ClusterName)
	return notes, nil
}

func (m *Member) setLeaving(leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaving = leaving
}

// abandon ends an attempt to create or join a cluster. It returns what is left to do.
func abandon(ctx context.Context, cfg Config, f file) (notes []string) {
	if f.Phase != phaseInit {
		return []string{fmt.Sprintf(
			"if the cluster has a node %s, remove it on another node with `fairlead cluster rm %s`", f.Name, f.Name)}
	}
	if err := uncreate(ctx, cfg, f); err != nil {
		return []string{fmt.Sprintf("etcd may have cluster %s of the interrupted attempt: %v: if it has, "+
			"`etcdctl del --prefix /fairlead/v1/%s/` deletes it", f.ClusterName, err, f.ClusterName)}
	}
	return nil
}

// forget deletes the directory.
func (m *Member) forget() error {
	if err := os.RemoveAll(m.cfg.Dir); err != nil {
		return fmt.Errorf("delete the cluster's files: %w", err)
	}
	m.mu.Lock()
	m.file, m.snapshot, m.problems, m.failed, m.resume = file{}, nil, nil, nil, nil
	m.host, m.frozen = host{}, ""
	m.mu.Unlock()
	if m.cfg.Changed != nil {
		m.cfg.Changed()
	}
	return nil
}

// leaveStore deletes the node's records in the store.
func (m *Member) leaveStore(ctx context.Context, f file, force bool) (notes []string, err error) {
	if attached := m.cfg.Attached(); len(attached) > 0 && !force {
		return nil, api.Faultf(api.Conflict,
			"leave the cluster: %s attached to networks of the cluster: detach them, or "+
				"use --force", are(attached))
	}
	if (standing{m}).cloned() {
		return []string{fmt.Sprintf("another host acts as node %s: its records in etcd stay", f.Name)}, nil
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
	self := record.Node{ID: f.Node, Name: f.Name}
	if nodes := nodesOf(s); len(nodes) > 1 || len(nodes) == 1 && nodes[f.Node].ID == "" {
		_, err := m.deleteNode(ctx, store, self)
		return err
	}
	for _, prefix := range []string{record.Networks, record.Services, record.Addresses, record.Gateway} {
		for e := range s.Under(prefix) {
			if !force {
				return api.Faultf(api.Conflict,
					"this is the last node, and the cluster still has %s: remove its networks, "+
						"services, addresses and what its gateways serve, or use --force", e.Key)
			}
		}
	}
	meta, err := closeCluster(ctx, store, f.Node)
	if err != nil || meta.Key == "" {
		return err
	}
	closed, err := m.snapshotAt(ctx, meta.Revision)
	if err != nil {
		return err
	}
	if len(nodesOf(closed)) > 0 { // a node has joined before
		if err := reopen(ctx, store, meta); err != nil {
			return err
		}
		_, err := m.deleteNode(ctx, store, self)
		return err
	}
	return deleteAll(ctx, store, closed, meta)
}

// closeCluster deletes the record of the last node, and makes sure that no node joins any more: a join
// depends on the revision of meta. It returns meta. Without meta another attempt has deleted the cluster.
func closeCluster(ctx context.Context, store kv.Committer, node string) (kv.Entry, error) {
	for {
		have, err := kv.Read(ctx, store, record.MetaKey)
		was, known := have[record.MetaKey]
		if err != nil || !known {
			return kv.Entry{}, err
		}
		meta, err := record.Decode[record.Meta](was)
		if err != nil {
			return kv.Entry{}, err
		}
		meta.Closed = true
		result, err := commit(ctx, store, kv.Txn{
			If: []kv.Condition{{Key: was.Key, Revision: was.Revision}},
			Then: []kv.Change{{Key: was.Key, Value: record.Encode(meta)}, {Key: record.Key(record.Nodes, node)},
				{Key: record.Key(record.Alives, node)}}})
		if err != nil || result.Committed {
			return kv.Entry{Key: was.Key, Value: record.Encode(meta), Revision: result.Revision}, err
		}
	}
}

// reopen lets nodes join again.
func reopen(ctx context.Context, store kv.Committer, e kv.Entry) error {
	meta, err := record.Decode[record.Meta](e)
	if err != nil {
		return err
	}
	meta.Closed = false
	_, err = commit(ctx, store, kv.Txn{If: []kv.Condition{{Key: e.Key, Revision: e.Revision}},
		Then: []kv.Change{{Key: e.Key, Value: record.Encode(meta)}}})
	return err
}

// deleteAll deletes all records, at last meta, so that it can be repeated. It deletes none of another
// cluster that has been created meanwhile.
func deleteAll(ctx context.Context, store kv.Committer, s kv.Snapshot, meta kv.Entry) error {
	var keys []string
	for e := range s.Under("") {
		if e.Key != record.MetaKey {
			keys = append(keys, e.Key)
		}
	}
	keys = append(keys, meta.Key)
	for part := range slices.Chunk(keys, maxChanges) {
		t := kv.Txn{If: []kv.Condition{{Key: meta.Key, Revision: meta.Revision}}}
		for _, key := range part {
			t.Then = append(t.Then, kv.Change{Key: key})
		}
		if _, err := commit(ctx, store, t); err != nil {
			return err
		}
	}
	return nil
}
