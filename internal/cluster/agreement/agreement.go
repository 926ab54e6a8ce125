// Package agreement compares what the nodes of a cluster find of its real servers. It asks the other nodes
// while this one finds a server down, answers their questions, and adds to the views of services what the
// nodes find. It changes nothing: each node uses the servers that its own checks find up (ADR 51).
//
// Theory of operation.
//
//	this node's checks ──► own ──► Peer(…, own) ──► Answer on nodes that accept the service's clients
//	                                    │                    │
//	                                 its report           keeps own as the report of this node
//	                                    ▼                    ▼
//	                                  heard ──► Services, Service, events
//
// After an exchange, both nodes know what the other one finds. While all servers are up, nothing is sent, and the
// store is not involved. A report is forgotten if its node does not repeat it.
package agreement

import (
	"context"
	"slices"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
)

// The times of exchanges. The first one waits for gather after a change, because the servers of a host go
// down together. The next ones follow after first, then after twice as long each time, up to every. With
// many nodes, they are rarer: a node asks one per perNode on average. After settled, a server that is up on
// other nodes is an event: their checks may only be later.
const (
	gather   = 200 * time.Millisecond
	first    = time.Second
	every    = 5 * time.Second
	settled  = 2 * time.Second
	perNode  = 50 * time.Millisecond
	askLimit = 2 * time.Second
	atOnce   = 8
)

// Host is the daemon of this host.
type Host interface {
	Services() []api.ServiceView
	Service(name string) (api.ServiceView, error)
	Note(api.Event)
}

// Peers are the other nodes (member.Member).
type Peers interface {
	Peer(ctx context.Context, id, kind string, question, into any) error
}

// Config contains what an Agreement needs.
type Config struct {
	Host  Host
	Peers Peers
	// Changed receives a value when states of the host's services may have changed.
	Changed <-chan struct{}
}

// Agreement is the host's part of the comparison. It is a member.Consumer.
type Agreement struct {
	cfg Config

	// mu protects the fields below.
	mu       sync.Mutex
	node     string
	snapshot kv.Snapshot
	// heard has the last report of each node, or why there is none, by its id.
	heard map[string]heard
	// judged has the servers that this node finds down.
	judged map[Server]judgement
}

// heard is the report of a node.
type heard struct {
	at      time.Time
	down    map[Server]bool
	partial bool
	// problem says why the node has not answered; empty if it has.
	problem string
}

// judgement is what was found about a server that is down here, and when that began.
type judgement struct {
	since   time.Time
	noticed api.EventKind
}

var _ member.Consumer = (*Agreement)(nil)

// New returns an Agreement without a snapshot. Run asks the other nodes.
func New(cfg Config) *Agreement {
	return &Agreement{cfg: cfg, heard: map[string]heard{}, judged: map[Server]judgement{}}
}

// Update takes over a snapshot.
func (a *Agreement) Update(_ context.Context, self member.Self, u kv.Update) (problems []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node, a.snapshot = self.Node, u.Snapshot
	return nil
}

// Leave forgets the snapshot and the reports.
func (a *Agreement) Leave() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.snapshot = nil
	clear(a.heard)
	clear(a.judged)
	return nil
}

// Run exchanges reports with the other nodes until ctx ends.
func (a *Agreement) Run(ctx context.Context) {
	var sent Report
	var again <-chan time.Time
	pause, pending := first, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.cfg.Changed:
			if !pending && !slices.Equal(a.own().Down, sent.Down) {
				pending, again, pause = true, time.After(gather), first
			}
			continue
		case <-again:
		}
		own := a.own()
		a.exchange(ctx, own, sent)
		a.judge(own, time.Now())
		sent, pending, again = own, false, nil
		if len(own.Down) > 0 {
			again, pause = time.After(max(pause, a.rest())), min(2*pause, every)
		}
	}
}

// rest returns the time between two exchanges that the number of nodes requires.
func (a *Agreement) rest() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return perNode * time.Duration(len(a.nodes()))
}

// hasServices reports whether the cluster has services.
func (a *Agreement) hasServices() (any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.snapshot != nil {
		a.snapshot.Under(record.Services)(func(kv.Entry) bool { any = true; return false })
	}
	return any
}

// nodes returns the names of the cluster's nodes by their ids.
func (a *Agreement) nodes() map[string]string {
	all := map[string]string{}
	if a.snapshot == nil {
		return all
	}
	for e, n := range record.Each[record.Node](a.snapshot, record.Nodes) {
		all[record.Names(record.Nodes, e.Key, 1)[0]] = n.Name
	}
	return all
}

// others returns the other nodes that accept the clients of a service, by their ids.
func (a *Agreement) others(service string) map[string]string {
	all := a.nodes()
	delete(all, a.node)
	if a.snapshot == nil {
		return all
	}
	r, known, err := record.Get[record.Service](a.snapshot, record.Key(record.Services, service))
	if err != nil || !known {
		return nil
	}
	for id, name := range all {
		if len(r.Ingress) > 0 && !slices.Contains(r.Ingress, name) {
			delete(all, id)
		}
	}
	return all
}
