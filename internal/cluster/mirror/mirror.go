// Package mirror follows the records of a cluster: it has the newest snapshot in memory and in a
// file, delivers changes to one consumer, and accepts no snapshot of another or an older store.
//
// Theory of operation. One goroutine lists the store and then watches it. Each batch of the watch
// makes a new kv.Table, which shares what did not change. The consumer gets the difference between
// the table that it has and the newest one, so a slow consumer costs nothing. The file gets the same
// difference in one transaction of bbolt, at most every few seconds.
//
// A watch that ended is continued at its revision, after the mirror has made sure that the store
// still has the newest entry that it knows. If the store has not, it was restored from an older copy
// or is another one: the mirror freezes. An answer of an etcd with another cluster id freezes it, too,
// whatever that etcd has: it may be a copy whose revisions are the same. The mirror then delivers
// nothing, and tries again until the store is the known one or Accept is called. It freezes for records of
// a newer format, too, until another version of Fairlead is installed.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

const (
	// defaultRetry is Config.Retry if it is 0.
	defaultRetry = 200 * time.Millisecond
	// staleAttempts is how often in a row the store must answer with an old revision. Single servers
	// of etcd can do that for a moment, and each attempt asks another one.
	staleAttempts = 8
)

// Source is a cluster's store, see package etcd.
type Source interface {
	kv.Committer
	List(ctx context.Context) (etcd uint64, revision int64, entries []kv.Entry, err error)
	Expect(etcd uint64)
	Holds(ctx context.Context, e kv.Entry, at int64) (bool, error)
	Watch(ctx context.Context, after int64, handle func(kv.Batch) error) error
	Next()
	// Drop closes connections from addresses that the host does not have any more.
	Drop(local []netip.Addr)
	Servers(ctx context.Context) []api.EtcdServer
	Close() error
}

// Config contains what a Mirror needs.
type Config struct {
	Source Source
	// Open returns another Source, for Reconnect. It does not wait for an answer.
	Open func(api.EtcdAccess) (Source, error)
	// Path is the file with the last snapshot; empty means none.
	Path string
	// Cluster is the id in record.Meta. A store with another one is refused. If it is empty, the
	// first one that the store has is the right one, and there is no file.
	Cluster string
	// Note records an event; it may be nil. It must not call the Mirror.
	Note func(api.Event)
	// Retry is the time between two attempts to reach the store; 0 means 200 ms. While the mirror is
	// frozen it is five times as long, because each attempt can read everything.
	Retry time.Duration
	// Log may be nil.
	Log *slog.Logger
}

// Mirror follows a store. Its methods may be called concurrently.
type Mirror struct {
	cfg  Config
	file *file

	// mu protects the fields below.
	mu    sync.Mutex
	from  Source
	table *kv.Table
	// newest is the entry of the table with the greatest revision.
	newest kv.Entry
	// etcd is the cluster id of the etcd that has the table; 0 if it is not known.
	etcd uint64
	// known is false until there is a table from the file or from the store.
	known     bool
	connected bool
	since     time.Time
	// why is the last error of following the store.
	why error
	// wrote is the outcome of the last transaction with changes, and wroteAt its time.
	wrote    error
	wroteAt  time.Time
	frozen   string
	stale    int
	accepted bool
	// changed is closed when one of the fields above changes.
	changed chan struct{}
}

// Open reads the file. Updates follows the store.
func Open(cfg Config) (*Mirror, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Retry = cmp.Or(cfg.Retry, defaultRetry)
	m := &Mirror{cfg: cfg, from: cfg.Source, table: kv.NewTable(0, nil), since: time.Now(),
		changed: make(chan struct{})}
	if cfg.Cluster == "" || cfg.Path == "" {
		return m, nil
	}
	f, table, err := openFile(cfg.Path, cfg.Cluster)
	if err != nil {
		return nil, err
	}
	m.file = f
	if table != nil {
		m.table, m.known, m.newest, m.etcd = table, true, newestOf(table), f.etcd
		cfg.Source.Expect(m.etcd)
		if m.frozen = unreadable(table); m.frozen != "" { // a newer version has written the file
			m.note(api.ClusterFrozen, m.frozen)
		}
	}
	return m, nil
}

// Close closes the store and the file. The context of Updates must have ended.
func (m *Mirror) Close() error {
	err := m.source().Close()
	if m.file != nil {
		err = errors.Join(err, m.file.close())
	}
	return err
}

// Reconnect follows the same store with another access. The snapshot stays, and transactions that are committed from
// now on use the access. The outcome of those that are under way can get lost (kv.ErrUnknown).
func (m *Mirror) Reconnect(access api.EtcdAccess) error {
	next, err := m.cfg.Open(access)
	if err != nil {
		return err
	}
	m.mu.Lock()
	next.Expect(m.etcd)
	before := m.from
	m.from = next
	m.mu.Unlock()
	return before.Close()
}

// source returns the connection to the store.
func (m *Mirror) source() Source {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.from
}

// Drop closes the store's connections from addresses that the host does not have any more.
func (m *Mirror) Drop(local []netip.Addr) { m.source().Drop(local) }

// Commit commits a transaction in the store. If another etcd answers, the mirror freezes. While the
// mirror is frozen, it commits nothing and returns kv.ErrFrozen: the transaction would change the
// records of another or an older store.
func (m *Mirror) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	m.mu.Lock()
	frozen := m.frozen
	m.mu.Unlock()
	if frozen != "" && m.cfg.Cluster != "" {
		return kv.Result{}, fmt.Errorf("commit transaction: %w: %s: if etcd has the right records, run "+
			"`fairlead cluster accept`", kv.ErrFrozen, frozen)
	}
	result, err := m.source().Commit(ctx, t)
	if len(t.Then) > 0 {
		m.noteWrite(err)
	}
	if errors.Is(err, kv.ErrOtherEtcd) {
		m.mu.Lock()
		accepted := m.accepted
		m.mu.Unlock()
		if !accepted { // or the next list makes the other one the known one
			m.freeze(m.otherEtcd())
		}
	}
	return result, err
}

// Updates follows the store. It sends the newest known snapshot, which can be from the file, and one
// for each change that follows, until ctx ends. While the consumer is busy, changes become one
// update. It must be called once. The channel is closed when nothing uses the store any more.
func (m *Mirror) Updates(ctx context.Context) <-chan kv.Update {
	updates := make(chan kv.Update)
	var tasks sync.WaitGroup
	tasks.Go(func() { m.follow(ctx) })
	tasks.Go(func() { m.deliver(ctx, updates) })
	if m.file != nil {
		tasks.Go(func() { m.save(ctx) })
	}
	go func() {
		tasks.Wait()
		close(updates)
	}()
	return updates
}

// renewAfter is how long an update is offered to a busy consumer before a newer one replaces it. To find what
// has changed costs more the longer the consumer is busy.
const renewAfter = 100 * time.Millisecond

// deliver sends updates to the consumer.
func (m *Mirror) deliver(ctx context.Context, updates chan<- kv.Update) {
	last := kv.NewTable(-1, nil)
	for ctx.Err() == nil {
		table, known, changed := m.current()
		if !known || table == last || unreadable(table) != "" {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if offer(ctx, updates, kv.Update{Snapshot: table, Changed: kv.Diff(last, table)}, changed) {
			last = table
		}
	}
}

// offer offers an update, and reports whether the consumer has taken it. A change replaces it after renewAfter.
func offer(ctx context.Context, updates chan<- kv.Update, update kv.Update, changed <-chan struct{}) bool {
	wait := time.NewTimer(renewAfter)
	defer wait.Stop()
	var replaced <-chan struct{}
	for {
		select {
		case updates <- update:
			return true
		case <-wait.C:
			replaced = changed
		case <-replaced:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// current returns the newest table, whether there is one, and a channel that is closed at the next
// change.
func (m *Mirror) current() (*kv.Table, bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table, m.known, m.changed
}

// update changes fields of the mirror, and wakes those who wait for changes.
func (m *Mirror) update(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.changed)
	m.changed = make(chan struct{})
}

// Frozen returns why the mirror delivers no changes; empty if it does.
func (m *Mirror) Frozen() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frozen
}

// Accept ends a freeze: the records of the store replace the known ones. It returns when they have.
// A store without the cluster, or with another one, is not accepted.
func (m *Mirror) Accept(ctx context.Context) error {
	m.mu.Lock()
	why, changed := m.frozen, m.changed
	if why != "" {
		m.accepted = true
	}
	m.mu.Unlock()
	if why == "" {
		return errors.New("accept the records of etcd: they are not frozen")
	}
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("accept the records of etcd: %w", ctx.Err())
		}
		m.mu.Lock()
		frozen, accepted := m.frozen, m.accepted
		changed = m.changed
		m.mu.Unlock()
		switch {
		case frozen == "":
			return nil
		case !accepted:
			return fmt.Errorf("accept the records of etcd: %s: restore a copy of the cluster that this host "+
				"can use", frozen)
		}
	}
}

// newestOf returns the entry with the greatest revision.
func newestOf(table *kv.Table) (newest kv.Entry) {
	for e := range table.Under("") {
		if e.Revision > newest.Revision {
			newest = e
		}
	}
	return newest
}

// clusterOf returns the id of the cluster in a table; empty if there is none.
func clusterOf(table *kv.Table) string {
	meta, _, err := record.Get[record.Meta](table, record.MetaKey)
	if err != nil {
		return "unreadable"
	}
	return meta.ID
}
