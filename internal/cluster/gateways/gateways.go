// Package gateways gives a host the routers, services and middlewares that belong to the cluster, so that the
// gateway of each host serves them, and publishes the host's sandboxes that the services select. It changes
// the records when files declare such objects.
//
//	snapshots ──► Update ──► Deriver ──► Host.Set
//	              Run: Host.Sandboxes ──► selected/SELECTOR/NODE/EP ──► store
//	Apply ──► gateway/SECTION/NAME ──► store
//
// Each record is checked on its own by a pure function, because any node can write all records: what is wrong
// with one disables its own object only. No record can name a file of the host.
//
// The daemon stores what it got last. So a daemon that starts without etcd serves the same objects, from its
// first configuration of the gateway on.
package gateways

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// The limits of a transaction.
const (
	changedAtOnce = 60
	commitLimit   = 5 * time.Second
)

// Host is the gateway of this host.
type Host interface {
	// Set replaces the objects of the cluster; nil removes them.
	Set(*model.ClusterGateway) error
	// Sandboxes returns the host's sandboxes that selectors find.
	Sandboxes([]model.Select) []api.SelectedSandbox
}

// Config contains what Gateways needs.
type Config struct {
	Host Host
	// Store commits transactions of the node.
	Store kv.Committer
	// Check returns what a gateway cannot use of a configuration, apart from what hosts differ in.
	Check func(gateway.Config) []model.GatewayProblem
	// Size returns the size of the regular expressions in a configuration, see expression.Size. It compiles none.
	Size func(gateway.Config) int
	// Changed receives a value when the host's sandboxes may have changed.
	Changed <-chan struct{}
	// Every is how long a failed transaction waits before it is repeated.
	Every time.Duration
	Log   *slog.Logger
}

// Gateways is the host's part of the cluster's gateways. It is a member.Consumer.
type Gateways struct {
	cfg  Config
	wake chan struct{}

	// mu protects the fields below.
	mu       sync.Mutex
	node     string
	snapshot kv.Snapshot
	deriver  *Deriver
	// selectors are those of the last snapshot.
	selectors []model.Select
	// problems are those of the last snapshot.
	problems []string
	// written is the revision of the last publication that put a record. The next one waits for a snapshot that
	// has it. A deletion has none if its first answer was lost, and is harmless if it is repeated.
	written int64
	// failed is the problem of the last transaction.
	failed string
	// refused is true if the host has not taken over the objects: Run tries again.
	refused bool
}

var _ member.Consumer = (*Gateways)(nil)

// New returns Gateways without a snapshot. Run publishes.
func New(cfg Config) *Gateways { return &Gateways{cfg: cfg, wake: make(chan struct{}, 1)} }

// Update takes over a snapshot, and returns the problems of its records and that of the last transaction.
func (g *Gateways) Update(_ context.Context, self member.Self, u kv.Update) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := g.snapshot == nil || g.node != self.Node
	if first {
		g.deriver = NewDeriver(self.Node, g.cfg.Size)
	} else if u.Snapshot.Revision() < g.snapshot.Revision() {
		g.written = 0 // the store was restored
	}
	g.node, g.snapshot = self.Node, u.Snapshot
	if first || slices.ContainsFunc(u.Changed, concerns) {
		g.derive()
	}
	problems := slices.Clone(g.problems)
	if g.failed != "" {
		problems = append(problems, g.failed)
	}
	return problems
}

// derive gives the host the objects of the snapshot.
func (g *Gateways) derive() {
	c, problems := g.deriver.Derive(g.snapshot)
	g.selectors = nil
	if c != nil {
		for _, by := range c.Config.Selectors() {
			g.selectors = append(g.selectors, model.Select(by))
		}
		for _, p := range c.Problems {
			problems = append(problems, fmt.Sprintf("gateway %s %s: %s", p.Kind, p.Name, p.Text))
		}
	}
	err := g.cfg.Host.Set(c)
	if g.refused = err != nil; g.refused {
		problems = append(problems, fmt.Sprintf("gateway: %v", err))
	}
	g.problems = problems
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// repeat gives the host the objects again that it has refused.
func (g *Gateways) repeat() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused && g.snapshot != nil {
		g.derive()
	}
}

// Leave removes the objects of the cluster from the host. The node's records are removed with the node.
func (g *Gateways) Leave() error {
	g.mu.Lock()
	g.snapshot, g.deriver, g.selectors, g.problems, g.failed = nil, nil, nil, nil, ""
	g.refused = false
	g.written = 0 // another cluster has other revisions
	g.mu.Unlock()
	return g.cfg.Host.Set(nil)
}

// Run publishes the host's selected sandboxes until ctx ends.
func (g *Gateways) Run(ctx context.Context) {
	tick := time.NewTicker(g.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		case <-g.cfg.Changed:
		case <-tick.C:
			g.repeat()
		}
		g.note(ctx, g.publish(ctx))
	}
}

// note keeps the problem of a transaction. A store that does not answer is none: the member shows that.
func (g *Gateways) note(ctx context.Context, err error) {
	failed := ""
	if err != nil && ctx.Err() == nil && !errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, kv.ErrUnknown) {
		failed = err.Error()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if failed != "" && failed != g.failed {
		g.cfg.Log.Warn("cluster gateways", "error", err)
	}
	g.failed = failed
}

// publish makes the records of the node's selected sandboxes equal to those that the host has.
func (g *Gateways) publish(ctx context.Context) error {
	g.mu.Lock()
	snapshot, node, written, selectors := g.snapshot, g.node, g.written, g.selectors
	g.mu.Unlock()
	if snapshot == nil || snapshot.Revision() < written {
		return nil
	}
	self, exists := snapshot.Get(record.Key(record.Nodes, node))
	if !exists {
		return nil
	}
	want := map[string]record.SelectedSandbox{}
	if len(selectors) > 0 {
		for _, f := range g.cfg.Host.Sandboxes(selectors) {
			want[record.Key(record.Selected, record.SelectorHash(f.By), node, f.Endpoint)] =
				record.SelectedSandbox{Address: f.Address, Draining: f.Draining, Down: f.Down}
		}
	}
	for part := range slices.Chunk(changes(snapshot, node, want), changedAtOnce) {
		limited, cancel := context.WithTimeout(ctx, commitLimit)
		t := kv.Txn{If: []kv.Condition{{Key: self.Key, Revision: self.Revision, Value: self.Value}}, Then: part}
		result, err := g.cfg.Store.Commit(limited, t)
		cancel()
		if err != nil {
			return fmt.Errorf("publish servers of the gateway: %w", err)
		}
		if !result.Committed {
			return nil // the next snapshot has another record of the node
		}
		if t.Puts() {
			g.mu.Lock()
			g.written = result.Revision
			g.mu.Unlock()
		}
	}
	return nil
}

// changes returns what to put and delete, so that the node's records are these.
func changes(s kv.Snapshot, node string, want map[string]record.SelectedSandbox) (all []kv.Change) {
	for e := range s.Under(record.Selected) {
		names := record.Names(record.Selected, e.Key, 3)
		if _, wanted := want[e.Key]; !wanted && len(names) == 3 && names[1] == node {
			all = append(all, kv.Change{Key: e.Key})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		value := record.Encode(want[key])
		if e, _ := s.Get(key); !bytes.Equal(e.Value, value) {
			all = append(all, kv.Change{Key: key, Value: value})
		}
	}
	return all
}
