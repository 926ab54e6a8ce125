package member

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// The times of the node's own records. The lease of the store is about ten seconds.
const (
	aliveEvery = 3 * time.Second
	// reportAgain is how long the node waits after a leased record that was not written.
	reportAgain = 500 * time.Millisecond
	// ownLimit is how long a request waits to see its own change.
	ownLimit = 2 * time.Second
	// snapshotLimit is how long a request waits for a snapshot that it needs. Consumers can be busy.
	snapshotLimit = 15 * time.Second
	// renewAgain is how long the node waits after a renewal that failed.
	renewAgain = time.Minute
	// commitLimit is how long one transaction of the node's own records may take.
	commitLimit = 5 * time.Second
)

// reporter writes what a node says about itself.
type reporter struct{ *Member }

// keepAlive writes the node's leased record, and its own record when the version, the MTU or the instance has
// changed, until ctx ends. A host that is not the node's instance writes only that.
func (m reporter) keepAlive(ctx context.Context, store kv.Committer) {
	var last record.Alive
	m.await(ctx, 1)
	for again := aliveEvery; ctx.Err() == nil; m.awaitReport(ctx, again) {
		f := m.self()
		again = aliveEvery
		if m.takeReconnected() {
			last = record.Alive{}
		}
		if !m.isMember(f.Node) {
			continue
		}
		if standing(m).cloned() {
			if !m.reportClone(ctx, store, f) {
				again = reportAgain
			}
			continue
		}
		m.withdrawClone(ctx, store, f)
		if now := m.alive(); !m.written(record.Key(record.Alives, f.Node)) || !sameAlive(last, now) {
			if m.reportAlive(ctx, store, f, now) {
				last = now
			} else {
				again = reportAgain
			}
		}
		m.describe(ctx, store)
	}
}

// alive returns what the node says about itself.
func (m reporter) alive() record.Alive {
	m.mu.Lock()
	now := record.Alive{Since: m.since.UTC(), Problems: standing(m).problemsOfHost(), Frozen: m.frozen}
	m.mu.Unlock()
	if m.cfg.Unable != nil {
		now.Unable = m.cfg.Unable()
	}
	return now
}

// takeReconnected reports whether the access to etcd has changed since the last call.
func (m *Member) takeReconnected() (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed, m.reconnected = m.reconnected, false
	return changed
}

// reportAlive writes the node's leased record, and reports whether that succeeded.
func (m reporter) reportAlive(ctx context.Context, store kv.Committer, f file, now record.Alive) bool {
	result, err := commitShort(ctx, store, kv.Txn{If: m.ownCondition(f.Node),
		Then: []kv.Change{{Key: record.Key(record.Alives, f.Node), Value: record.Encode(now), Leased: true}}})
	return err == nil && result.Committed
}

// awaitReport waits until the leased record is to be checked again, at the latest after a time.
func (m reporter) awaitReport(ctx context.Context, after time.Duration) {
	select {
	case <-time.After(after):
	case <-m.report:
	case <-ctx.Done():
	}
}

// sameAlive reports whether two records are equal.
func sameAlive(a, b record.Alive) bool {
	return a.Since.Equal(b.Since) && slices.Equal(a.Problems, b.Problems) && maps.Equal(a.Unable, b.Unable) &&
		a.Frozen == b.Frozen
}

// withdrawClone deletes what reportClone has written, after the host was recognised: else the others would go on
// showing it as a copy.
func (m reporter) withdrawClone(ctx context.Context, store kv.Committer, f file) {
	m.mu.Lock()
	key := record.Key(record.Clones, f.Node, m.host.id)
	m.mu.Unlock()
	if m.written(key) {
		// If that fails, the next call tries it again.
		_, _ = commitShort(ctx, store, kv.Txn{If: m.ownCondition(f.Node), Then: []kv.Change{{Key: key}}})
	}
}

// reportClone writes the leased record of a host that does not act as the node, so that the others show it. It
// reports whether that succeeded.
func (m reporter) reportClone(ctx context.Context, store kv.Committer, f file) bool {
	m.mu.Lock()
	id, addresses, since := m.host.id, m.host.addresses(), m.since.UTC()
	m.mu.Unlock()
	key := record.Key(record.Clones, f.Node, id)
	if m.written(key) {
		return true
	}
	clone := record.Clone{Addresses: addresses[:min(len(addresses), maxShown)], Since: since}
	result, err := commitShort(ctx, store, kv.Txn{If: m.ownCondition(f.Node),
		Then: []kv.Change{{Key: key, Value: record.Encode(clone), Leased: true}}})
	return err == nil && result.Committed
}

// keepLooking reads the host's links until ctx ends, and decides whether the host may act as its node.
func (m standing) keepLooking(ctx context.Context) {
	for kv.Wait(ctx, lookEvery); ctx.Err() == nil; kv.Wait(ctx, lookEvery) {
		m.look()
		m.judge()
	}
}

// written reports whether the newest snapshot has the key.
func (m reporter) written(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.snapshot.Get(key)
	return known
}

// ownCondition is true while the node's record is that of the newest snapshot, so that a removed
// node writes nothing.
func (m reporter) ownCondition(node string) []kv.Condition {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, _ := m.snapshot.Get(record.Key(record.Nodes, node))
	return []kv.Condition{{Key: record.Key(record.Nodes, node), Revision: e.Revision}}
}

func commitShort(ctx context.Context, store kv.Committer, t kv.Txn) (kv.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	return store.Commit(ctx, t)
}

// describe corrects the node's own record after an upgrade or a reboot, or when the host's links have changed. A
// frozen host corrects nothing.
func (m reporter) describe(ctx context.Context, store kv.Committer) {
	m.mu.Lock()
	n, e, known := standing(m).ownRecord()
	frozen, instance := m.frozen, m.host.instance(n.Addresses)
	m.mu.Unlock()
	if !known || frozen != "" {
		return
	}
	mtu := m.cfg.mtu(n.Addresses, n.MTU)
	recognised := len(instance.Hardware) == 0 || shareHardware(n.Instance.Hardware, instance.Hardware)
	if n.Version == m.cfg.Version && n.MTU == mtu && n.Instance.ID == instance.ID && recognised {
		return
	}
	n.Version, n.MTU = m.cfg.Version, mtu
	if n.Instance.ID != instance.ID || !recognised {
		n.Instance = instance
	}
	_, err := commitShort(ctx, store, kv.Txn{If: []kv.Condition{{Key: e.Key, Revision: e.Revision}},
		Then: []kv.Change{{Key: e.Key, Value: record.Encode(n)}}})
	if err != nil && !errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, kv.ErrFrozen) {
		m.cfg.Log.Warn("write the node's record", "error", err)
	}
}

// mtu returns the smallest MTU of the links with these addresses. While it cannot be read, for example
// because an address is missing for a moment, the earlier one is valid.
func (c *Config) mtu(addresses []netip.Addr, earlier int) int {
	mtu, err := c.MTU(addresses)
	if err != nil {
		c.Log.Warn("read the MTU of the node's links", "error", err)
	}
	if err != nil || mtu == 0 {
		return earlier
	}
	return mtu
}

// renewal renews a node's certificate.
type renewal struct{ *Member }

// renew renews the node's certificate in time, until ctx ends. The node signs it, so that it needs
// neither etcd nor another node.
func (m renewal) renew(ctx context.Context) {
	jitter := rand.Float64()
	left := func() time.Duration { return trust.RenewIn(m.self().Certificate, m.cfg.Now(), jitter) }
	for alarm.Until(ctx, left) == nil {
		if err := m.renewNow(); err != nil {
			m.cfg.Log.Warn("renew the node's certificate", "error", err)
			kv.Wait(ctx, renewAgain)
		}
	}
}

// renewNow signs and stores another certificate. A node that was removed gets none.
func (m renewal) renewNow() error {
	m.mu.Lock()
	f, snapshot := m.file, m.snapshot
	m.mu.Unlock()
	if snapshot == nil {
		return errors.New("there is no snapshot of the cluster's records yet")
	}
	if !m.isMember(f.Node) {
		return trust.ErrNotMember
	}
	ca, err := authorityOf(f, snapshot)
	if err != nil {
		return err
	}
	certificate, err := ca.Sign(trust.Identity{Cluster: f.Cluster, Node: f.Node}, &f.key.PublicKey, m.cfg.Now())
	if err != nil {
		return err
	}
	return m.amend(f.Node, func(f *file) { f.Certificate = certificate })
}
