package member

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// SetHost makes this host the one that acts as its node, with other addresses if some are given. The API, the
// overlays of all nodes and the routes to this one follow. It also works while the host is frozen. Returns a Fault:
// Invalid if the host does not have an address, Conflict if another node has it, or if another host acts as the node
// and may not be replaced.
func (m *Member) SetHost(ctx context.Context, r api.ClusterHost) error {
	m.orders.Lock()
	defer m.orders.Unlock()
	store, s, err := m.inCluster()
	if err != nil {
		return err
	}
	if len(r.Addresses) > 0 {
		if err := m.ownAddresses(r.Addresses); err != nil {
			return err
		}
	}
	for {
		t, err := m.settling(s, r)
		if err != nil {
			return err
		}
		result, err := commit(ctx, store, t)
		if err != nil {
			return fmt.Errorf("write the node's record: %w", err)
		}
		if result.Committed {
			m.awaitOwn(ctx, result.Revision)
			return nil
		}
		if s, err = m.snapshotAt(ctx, max(newestRevision(result.Current), s.Revision()+1)); err != nil {
			return err
		}
	}
}

// settling returns the transaction of SetHost.
func (m *Member) settling(s kv.Snapshot, r api.ClusterHost) (t kv.Txn, err error) {
	f := m.self()
	key := record.Key(record.Nodes, f.Node)
	e, known := s.Get(key)
	if !known {
		return t, ErrRemoved
	}
	n, err := record.Decode[record.Node](e)
	if err != nil {
		return t, err
	}
	if len(r.Addresses) > 0 {
		n.Addresses = slices.Clone(r.Addresses)
	}
	meta, touched, err := openMeta(s)
	if err != nil {
		return t, err
	}
	t.If = []kv.Condition{{Key: key, Revision: e.Revision}, meta}
	m.mu.Lock()
	foreign, instance, missing := m.host.foreign(n), m.host.instance(n.Addresses), m.host.missing(n.Addresses)
	m.mu.Unlock()
	if foreign {
		if err := replaceable(s, n, r); err != nil {
			return t, err
		}
		t.If = append(t.If, kv.Condition{Key: record.Key(record.Alives, f.Node)})
	}
	if len(missing) > 0 {
		return t, missingAddress(n.Name, missing)
	}
	if err := freeAddresses(s, n.ID, n.Addresses); err != nil {
		return t, err
	}
	n.Instance, n.MTU = instance, m.cfg.mtu(n.Addresses, n.MTU)
	t.Then = []kv.Change{{Key: key, Value: record.Encode(n)}, touched,
		{Key: record.Key(record.Clones, n.ID, instance.ID)}}
	return t, nil
}

func missingAddress(node string, missing []netip.Addr) error {
	return api.Faultf(api.Conflict, "this host does not have the address %s of node %s: name its own with --address",
		listed(missing), node)
}

// replaceable returns an error unless this host may replace the one that acts as the node.
func replaceable(s kv.Snapshot, n record.Node, r api.ClusterHost) error {
	_, alive := s.Get(record.Key(record.Alives, n.ID))
	switch {
	case !r.Takeover:
		return api.Faultf(api.Conflict, "another host acts as node %s: if it is down for good, run `fairlead cluster "+
			"takeover --force` first", n.Name)
	case alive:
		return api.Faultf(api.Conflict, "take over node %s: the host that acts as it is alive: stop that one; a host that "+
			"has ended is shown as alive for about ten seconds", n.Name)
	case !r.Force:
		return api.Faultf(api.Conflict, "take over node %s: if the host that acts as it is cut off but runs, two hosts can "+
			"answer for its virtual addresses: make sure that it is down, and use --force", n.Name)
	}
	return nil
}
