package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// errStale is the error of a watch at a server with a lower revision than the snapshot.
var errStale = errors.New("the server has an older revision")

// errFrozen is the error of a watch while the mirror is frozen.
var errFrozen = errors.New("the records are frozen")

// follow lists and watches the store until ctx ends.
func (m *Mirror) follow(ctx context.Context) {
	// The first list makes sure that the file is of this store.
	for listed := false; ctx.Err() == nil; {
		source := m.source()
		err := m.attempt(ctx, &listed)
		if ctx.Err() == nil && source == m.source() {
			m.lost(err)
		}
		kv.Wait(ctx, m.pause())
	}
}

// pause returns the time before the next attempt.
func (m *Mirror) pause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.frozen != "" {
		return 5 * m.cfg.Retry
	}
	return m.cfg.Retry
}

// attempt makes the table that of the store, and keeps it so until there is an error.
func (m *Mirror) attempt(ctx context.Context, listed *bool) error {
	same, why, err := m.different(ctx, listed)
	if err == nil && why == "" {
		err = m.newer(ctx, listed, same)
	}
	if errors.Is(err, kv.ErrOtherEtcd) {
		why, err = m.otherEtcd(), nil
	}
	if why != "" {
		m.freeze(why)
	}
	return err
}

// newer lists the store if necessary, and watches it until there is an error. same means that the store was found to
// be the known one.
func (m *Mirror) newer(ctx context.Context, listed *bool, same bool) error {
	if !*listed {
		frozen, err := m.list(ctx, same)
		if err != nil || frozen {
			return err
		}
		*listed = true
	}
	table, _, _ := m.current()
	err := m.source().Watch(ctx, table.Revision(), m.apply)
	switch {
	case errors.Is(err, kv.ErrCompacted):
		*listed = false
		return nil // the store answers
	case errors.Is(err, errFrozen):
		return nil
	}
	return err
}

// otherEtcd describes an etcd that is not the known one.
func (m *Mirror) otherEtcd() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("another etcd answers: its cluster id is not the known %x", m.etcd)
}

// different returns why the store is another one than the known one, or whether it certainly is the same. If the
// store cannot know, or is the known one again, the caller lists.
func (m *Mirror) different(ctx context.Context, listed *bool) (same bool, why string, err error) {
	m.mu.Lock()
	newest, at, accepted, frozen := m.newest, m.table.Revision(), m.accepted, m.frozen
	m.mu.Unlock()
	if newest.Revision == 0 || accepted {
		*listed = false
		return false, "", nil
	}
	// The revision of the table can be that of a deletion, which is newer than all entries.
	holds, err := m.source().Holds(ctx, newest, at)
	switch {
	case errors.Is(err, kv.ErrFuture):
		why, err = m.countStale()
		return false, why, err
	case errors.Is(err, kv.ErrCompacted):
		*listed = false
		return false, frozen, nil
	case err != nil:
		return false, "", err
	case !holds:
		return false, fmt.Sprintf("etcd was restored from a copy: at revision %d it does not have the known %s",
			at, newest.Key), nil
	}
	m.update(func() { m.stale = 0 })
	*listed = *listed && frozen == ""
	return true, "", nil
}

// countStale returns why the store is not the known one, once it has often answered with an old
// revision, and errStale before.
func (m *Mirror) countStale() (why string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stale++
	m.from.Next()
	if m.stale < staleAttempts {
		return "", errStale
	}
	return fmt.Sprintf("etcd was restored from a copy or is another one: it has not reached the known revision %d",
		m.table.Revision()), nil
}

// list replaces the table with what the store has, unless that is not the known store. same means that it was found
// to be the known one.
func (m *Mirror) list(ctx context.Context, same bool) (frozen bool, err error) {
	etcd, revision, entries, err := m.source().List(ctx)
	if err != nil {
		return false, err
	}
	next := kv.NewTable(revision, entries)
	m.mu.Lock()
	table, known, accepted, other := m.table, m.known, m.accepted, m.etcd != 0 && m.etcd != etcd
	m.mu.Unlock()
	if other && !accepted {
		m.source().Next()
		return true, kv.ErrOtherEtcd
	}
	if id := clusterOf(next); m.cfg.Cluster != "" && id != m.cfg.Cluster && (accepted || revision >= table.Revision()) {
		m.freeze(otherCluster(id, m.cfg.Cluster))
		return true, nil
	}
	if why := unreadable(next); why != "" {
		m.freeze(why)
		return true, nil
	}
	if known && !accepted {
		if revision < table.Revision() {
			why, err := m.countStale()
			if err == nil {
				m.freeze(why)
			}
			return true, err
		}
		if why := suspicious(table, next, same); why != "" {
			m.freeze(why)
			return true, nil
		}
	}
	m.source().Expect(etcd)
	was := ""
	m.update(func() {
		was = m.frozen
		m.table, m.newest, m.known, m.frozen, m.accepted, m.stale = next, newestOf(next), true, "", false, 0
		m.etcd = etcd
	})
	m.heard()
	if was != "" {
		m.note(api.ClusterFollowed, "")
	}
	return false, nil
}

// otherCluster describes a store that has the cluster is instead of was; empty is none.
func otherCluster(is, was string) string {
	if is == "" {
		return "etcd has no records of the cluster"
	}
	return fmt.Sprintf("etcd has another cluster with this name (%q instead of %q)", is, was)
}

// unreadable returns why this version cannot use the records of a table; empty if it can.
func unreadable(table *kv.Table) string {
	meta, _, err := record.Get[record.Meta](table, record.MetaKey)
	if err != nil || meta.Format <= record.Format {
		return ""
	}
	return fmt.Sprintf("the cluster has records of format %d, and this host knows format %d: install the version of "+
		"the other nodes", meta.Format, record.Format)
}

// suspicious returns why a list is not of the known store, although its revision is not lower. In the same store,
// nodes can be missing: they were removed.
func suspicious(table, next *kv.Table, same bool) string {
	if was, is := clusterOf(table), clusterOf(next); was != "" && was != is {
		return otherCluster(is, was)
	}
	nodes, missing := 0, 0
	for e := range table.Under(record.Nodes) {
		nodes++
		if _, ok := next.Get(e.Key); !ok {
			missing++
		}
	}
	if !same && missing > 1 && missing*3 > nodes {
		return fmt.Sprintf("etcd has no records of %d of %d nodes", missing, nodes)
	}
	for e := range next.Under("") {
		if was, ok := table.Get(e.Key); ok && e.Revision < was.Revision {
			return fmt.Sprintf("etcd was restored from a copy: it has an older record %s", e.Key)
		}
	}
	return ""
}

// apply makes a new table from a batch of changes.
func (m *Mirror) apply(b kv.Batch) error {
	m.mu.Lock()
	table, frozen := m.table, m.frozen
	m.mu.Unlock()
	if frozen != "" {
		return errFrozen // by Commit
	}
	if b.Newest < table.Revision() {
		m.source().Next()
		return errStale
	}
	m.heard()
	if len(b.Changes) == 0 {
		return nil
	}
	last := b.Changes[len(b.Changes)-1]
	if last.Revision <= table.Revision() {
		return nil
	}
	next := table.With(last.Revision, b.Changes)
	if why := unreadable(next); why != "" {
		m.freeze(why)
		return errFrozen
	}
	m.update(func() {
		m.table = next
		for _, e := range b.Changes {
			if e.Value != nil {
				m.newest = e
			}
		}
		if _, ok := next.Get(m.newest.Key); !ok {
			m.newest = newestOf(next)
		}
	})
	return nil
}

// heard notes that the store answers.
func (m *Mirror) heard() {
	m.mu.Lock()
	was := m.connected
	m.mu.Unlock()
	if !was {
		m.update(func() { m.connected, m.since, m.stale = true, time.Now(), 0 })
		m.note(api.EtcdAnswers, "")
	}
}

// lost notes that the store does not answer.
func (m *Mirror) lost(err error) {
	m.mu.Lock()
	was := m.connected
	if err != nil {
		m.why = err
	}
	m.mu.Unlock()
	if was && err != nil {
		m.update(func() { m.connected, m.since = false, time.Now() })
		m.note(api.EtcdLost, err.Error())
	}
}

// freeze stops the delivery of changes.
func (m *Mirror) freeze(why string) {
	m.heard()
	was := ""
	m.update(func() { was, m.frozen, m.accepted = m.frozen, why, false })
	if was != why {
		m.note(api.ClusterFrozen, why+": see `fairlead cluster status`")
	}
}

func (m *Mirror) note(kind api.EventKind, detail string) {
	if m.cfg.Note != nil {
		m.cfg.Note(api.Event{Kind: kind, Object: "cluster", Detail: detail})
	}
}
