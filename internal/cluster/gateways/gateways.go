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
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/publisher"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// changedAtOnce is how many objects one transaction changes.
const changedAtOnce = 60

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
	cfg       Config
	publisher *publisher.Publisher

	// mu protects the fields below.
	mu       sync.Mutex
	node     string
	snapshot kv.Snapshot
	deriver  *Deriver
	// selectors are those of the last snapshot.
	selectors []model.Select
	// problems are those of the last snapshot.
	problems []string
	// refused is true if the host has not taken over the objects: Run tries again.
	refused bool
}

var _ member.Consumer = (*Gateways)(nil)

// New returns Gateways without a snapshot. Run publishes.
func New(cfg Config) *Gateways {
	return &Gateways{cfg: cfg, publisher: publisher.New(publisher.Config{Prefix: record.Selected,
		Records: "servers of the gateway", Part: "cluster gateways", Store: cfg.Store, Changed: cfg.Changed,
		Every: cfg.Every, Log: cfg.Log})}
}

// Update takes over a snapshot, and returns the problems of its records and that of the last transaction.
func (g *Gateways) Update(_ context.Context, self member.Self, u kv.Update) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := g.snapshot == nil || g.node != self.Node
	if first {
		g.deriver = NewDeriver(self.Node, g.cfg.Size)
	}
	g.node, g.snapshot = self.Node, u.Snapshot
	g.publisher.Update(self.Node, u)
	if first || slices.ContainsFunc(u.Changed, concerns) {
		g.derive()
	}
	return slices.Concat(g.problems, g.publisher.Problems())
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
	g.publisher.Wake()
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
	g.snapshot, g.deriver, g.selectors, g.problems, g.refused = nil, nil, nil, nil, false
	g.publisher.Leave()
	g.mu.Unlock()
	return g.cfg.Host.Set(nil)
}

// Run publishes the host's selected sandboxes until ctx ends.
func (g *Gateways) Run(ctx context.Context) {
	g.publisher.Run(ctx, func(ctx context.Context, tick bool) error {
		if tick {
			g.repeat()
		}
		return g.publisher.Publish(ctx, g.selected)
	})
}

// selected returns the records of the host's selected sandboxes, by their keys.
func (g *Gateways) selected(_ kv.Snapshot, node string) map[string][]byte {
	g.mu.Lock()
	selectors := g.selectors
	g.mu.Unlock()
	if len(selectors) == 0 {
		return nil
	}
	all := map[string][]byte{}
	for _, f := range g.cfg.Host.Sandboxes(selectors) {
		all[record.Key(record.Selected, record.SelectorHash(f.By), node, f.Endpoint)] =
			record.Encode(record.SelectedSandbox{Address: f.Address, Draining: f.Draining, Down: f.Down})
	}
	return all
}
