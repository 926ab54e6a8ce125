package member

import (
	"context"
	"fmt"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// SetEtcd replaces how this node reaches etcd, and connects again. What the host has from the cluster stays meanwhile,
// and the node goes on renewing its virtual addresses.
// Other nodes keep their own access, and nodes that join here later get the new one. Returns a Fault with code
// Conflict, and changes nothing, if the new access does not reach the cluster of this node.
func (m *Member) SetEtcd(ctx context.Context, access api.EtcdAccess) error {
	m.orders.Lock()
	defer m.orders.Unlock()
	f := m.self()
	if f.Phase != phaseMember {
		_, _, err := m.inCluster()
		return err
	}
	if len(access.Endpoints) == 0 {
		return api.Faultf(api.Invalid, "change the access to etcd: want the URL of etcd, e.g. --etcd https://192.0.2.7:2379")
	}
	f.Access = access
	if err := inStore(m.cfg, f, func(store kv.Committer) error { return reaches(ctx, store, f) }); err != nil {
		return fmt.Errorf("change the access to etcd: %w", err)
	}
	if err := m.amend(f.Node, func(f *file) { f.Access = access }); err != nil {
		return err
	}
	m.cfg.Log.Info("access to etcd changed", "cluster", f.ClusterName)
	return reconnect(m, access)
}

// reconnect gives the store the access. A host whose tasks could not be started tries that with it.
func reconnect(m *Member, access api.EtcdAccess) error {
	m.starting.Lock()
	m.mu.Lock()
	store := m.store
	m.mu.Unlock()
	if store == nil {
		m.starting.Unlock()
		return m.start()
	}
	defer m.starting.Unlock()
	if err := store.Reconnect(access); err != nil {
		return err
	}
	// Only now: the node's record must be written with the lease of the new connection.
	m.mu.Lock()
	m.reconnected = true
	m.mu.Unlock()
	m.report.Send()
	return nil
}

// probe returns a transaction that changes nothing: no key has the name absent. etcd refuses it unless it accepts
// changes of the node: without the permission, when its quota is reached, without a quorum.
func probe(node string) kv.Txn {
	return kv.Txn{If: []kv.Condition{{Key: "absent", Revision: 1}, {Key: record.MetaKey}},
		Then: []kv.Change{{Key: record.Key(record.Alives, node), Value: record.Encode(record.Alive{})}}}
}

// reaches returns an error unless the store has the cluster, and the node may write there. An etcd whose quota is
// reached is not refused: its users and certificates can change nevertheless.
func reaches(ctx context.Context, store kv.Committer, f file) error {
	t := probe(f.Node)
	t.Then[0].Value = nil
	result, err := commit(ctx, store, t)
	if err != nil {
		return err
	}
	if len(result.Current) == 0 {
		return api.Faultf(api.Conflict, "this etcd has no cluster %s: if it moved, restore its data there first",
			f.ClusterName)
	}
	meta, err := record.Decode[record.Meta](result.Current[0])
	if err == nil && meta.ID != f.Cluster {
		err = api.Faultf(api.Conflict, "this etcd has another cluster %s: this host belongs to that with the id %s",
			f.ClusterName, f.Cluster)
	}
	return err
}
