// Package publisher keeps the records that a node publishes below one prefix equal to what its host has: its
// endpoints, real servers or selected sandboxes. It does not decide which records these are.
//
// Theory of operation. Each record has a key PREFIX/NAME/NODE/NAME, which only the node writes. A transaction is
// committed only while the node's own record is unchanged, so a node that was removed publishes nothing. After a
// transaction the next one waits for a snapshot that has it.
package publisher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// Limit is how long the store may take for one transaction.
const Limit = 5 * time.Second

// atOnce is how many records one transaction changes.
const atOnce = 64

// Config contains what a Publisher needs.
type Config struct {
	// Prefix is that of the records.
	Prefix string
	// Records is what errors call the records, and Part what the log calls the caller, e.g. "cluster services".
	Records, Part string
	// Store commits transactions of the node.
	Store kv.Committer
	// Changed receives a value when the host may have other records.
	Changed <-chan struct{}
	// Every is how long a failed transaction waits before it is repeated.
	Every time.Duration
	Log   *slog.Logger
}

// Publisher publishes the records of a node. The methods may be called concurrently.
type Publisher struct {
	cfg  Config
	wake alarm.Signal

	// mu protects the fields below.
	mu       sync.Mutex
	node     string
	snapshot kv.Snapshot
	// published has the keys of the node's records in the snapshot.
	published map[string]bool
	// written is the revision of the last transaction that put a record. The next one waits for a snapshot that
	// has it. A deletion has none if its first answer was lost, and is harmless if it is repeated.
	written int64
	// failed is the problem of the last transaction.
	failed string
}

// New returns a Publisher without a snapshot.
func New(cfg Config) *Publisher { return &Publisher{cfg: cfg, wake: alarm.NewSignal()} }

// Update takes over a snapshot. It reports whether the node's record or one of the published ones has changed: those
// of other nodes do not concern this one.
func (p *Publisher) Update(node string, u kv.Update) (concerned bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.snapshot == nil || p.node != node {
		p.published = map[string]bool{}
	} else if u.Snapshot.Revision() < p.snapshot.Revision() {
		p.written = 0 // the store was restored
	}
	p.node, p.snapshot = node, u.Snapshot
	for _, key := range u.Changed {
		if key == record.Key(record.Nodes, node) {
			concerned = true
		}
		names := record.Names(p.cfg.Prefix, key, 3)
		if !strings.HasPrefix(key, p.cfg.Prefix) || len(names) != 3 || names[1] != node {
			continue
		}
		concerned = true
		if _, exists := u.Snapshot.Get(key); exists {
			p.published[key] = true
		} else {
			delete(p.published, key)
		}
	}
	return concerned
}

// Leave forgets the snapshot. The node's records are removed with the node.
func (p *Publisher) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snapshot, p.published, p.failed = nil, nil, ""
	p.written = 0 // another cluster has other revisions
}

// Problems returns the problem of the last step of Run.
func (p *Publisher) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == "" {
		return nil
	}
	return []string{p.failed}
}

// Wake makes Run do the next step at once.
func (p *Publisher) Wake() { p.wake.Send() }

// Run calls step after each change, and each time that Config.Every has passed (tick), until ctx ends. It keeps the
// problem that step returns.
func (p *Publisher) Run(ctx context.Context, step func(ctx context.Context, tick bool) error) {
	ticker := time.NewTicker(p.cfg.Every)
	defer ticker.Stop()
	for {
		tick := false
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-p.cfg.Changed:
		case <-ticker.C:
			tick = true
		}
		p.note(ctx, step(ctx, tick))
	}
}

// note keeps the problem of a transaction. A store that does not answer is none: the member shows that.
func (p *Publisher) note(ctx context.Context, err error) {
	failed := ""
	if err != nil && ctx.Err() == nil && !errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, kv.ErrUnknown) {
		failed = err.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed != "" && failed != p.failed {
		p.cfg.Log.Warn(p.cfg.Part, "error", err)
	}
	p.failed = failed
}

// Publish makes the node's records equal to those that the host has. The values of wanted are by their keys.
func (p *Publisher) Publish(ctx context.Context, wanted func(s kv.Snapshot, node string) map[string][]byte) error {
	p.mu.Lock()
	snapshot, node, written, published := p.snapshot, p.node, p.written, slices.Sorted(maps.Keys(p.published))
	p.mu.Unlock()
	if snapshot == nil || snapshot.Revision() < written {
		return nil
	}
	self, exists := snapshot.Get(record.Key(record.Nodes, node))
	if !exists {
		return nil
	}
	for part := range slices.Chunk(changes(snapshot, published, wanted(snapshot, node)), atOnce) {
		limited, cancel := context.WithTimeout(ctx, Limit)
		t := kv.Txn{If: []kv.Condition{self.Unchanged()}, Then: part}
		result, err := p.cfg.Store.Commit(limited, t)
		cancel()
		if err != nil {
			return fmt.Errorf("publish %s: %w", p.cfg.Records, err)
		}
		if !result.Committed {
			return nil // the next snapshot has another record of the node
		}
		if t.Puts() {
			p.mu.Lock()
			p.written = result.Revision
			p.mu.Unlock()
		}
	}
	return nil
}

// changes returns what to put and delete, so that the node's records are these.
func changes(s kv.Snapshot, published []string, want map[string][]byte) (all []kv.Change) {
	for _, key := range published {
		if _, wanted := want[key]; !wanted {
			all = append(all, kv.Change{Key: key})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if e, _ := s.Get(key); !bytes.Equal(e.Value, want[key]) {
			all = append(all, kv.Change{Key: key, Value: want[key]})
		}
	}
	return all
}
