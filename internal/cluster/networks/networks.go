// Package networks gives a host its part of a cluster's networks: it claims blocks of addresses,
// derives the networks from snapshots, and publishes the host's own endpoints for the other nodes.
// What the records mean is decided in packages block and derive.
//
//	snapshots ──► Update ──► derive ──► Host.SetCluster
//	              Run: Host.Networks, Host.Attachments ──► claims, records of endpoints ──► store
//
// Nothing here waits for the store while the host's networks change: Run makes the transactions, and
// what they change comes back with a snapshot. Without the store the host keeps its networks and
// leases from its blocks.
package networks

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/derive"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// Host is the daemon of this host.
type Host interface {
	// SetCluster replaces the host's networks and services of the cluster, and returns the
	// problems.
	SetCluster(networks []model.Network, services []model.VirtualService) []string
	// LeaveCluster removes them.
	LeaveCluster() error
	Networks() []model.Network
	Attachments() []api.View
}

// Config contains what Networks needs.
type Config struct {
	Host Host
	// Store commits transactions of the node.
	Store kv.Committer
	// Every is how often the use of addresses is compared with the blocks, and how long a failed
	// transaction waits.
	Every time.Duration
	Log   *slog.Logger
}

// Networks is the host's part of the cluster's networks. It is a member.Consumer.
type Networks struct {
	cfg  Config
	wake chan struct{}

	// mu protects the fields below.
	mu       sync.Mutex
	self     member.Self
	snapshot kv.Snapshot
	deriver  *derive.Deriver
	// failed are the problems of the last transactions.
	failed []string
}

var _ member.Consumer = (*Networks)(nil)

// New returns Networks without a snapshot. Run makes its transactions.
func New(cfg Config) *Networks { return &Networks{cfg: cfg, wake: make(chan struct{}, 1)} }

// Update applies the networks of a snapshot, and returns the problems.
func (n *Networks) Update(_ context.Context, self member.Self, u kv.Update) (problems []string) {
	n.mu.Lock()
	if n.deriver == nil || n.self != self {
		n.deriver = derive.New(self.Node)
	}
	n.self, n.snapshot = self, u.Snapshot
	failed := slices.Clone(n.failed)
	networks, problems := n.deriver.Update(u)
	n.mu.Unlock()
	problems = append(problems, n.cfg.Host.SetCluster(networks, nil)...)
	select {
	case n.wake <- struct{}{}:
	default:
	}
	return append(problems, failed...)
}

// Leave removes the networks of the cluster from the host. The node's records are removed with the
// node.
func (n *Networks) Leave() error {
	n.mu.Lock()
	n.snapshot, n.deriver, n.failed = nil, nil, nil
	n.mu.Unlock()
	return n.cfg.Host.LeaveCluster()
}

// Run claims blocks and publishes endpoints until ctx ends.
func (n *Networks) Run(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-tick.C:
		}
		n.mu.Lock()
		s, node := n.snapshot, n.self.Node
		n.mu.Unlock()
		if s == nil {
			continue
		}
		err := errors.Join(n.claim(ctx, s, node), n.publish(ctx, s, node))
		n.note(ctx, err)
	}
}

// note keeps the problems of transactions. A store that does not answer is none: the member shows
// that.
func (n *Networks) note(ctx context.Context, err error) {
	var failed []string
	if err != nil && ctx.Err() == nil && !errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, kv.ErrUnknown) {
		failed = []string{err.Error()}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(failed) > 0 && !slices.Equal(failed, n.failed) {
		n.cfg.Log.Warn("cluster networks", "error", err)
	}
	n.failed = failed
}

// claim claims a block of each subnet in which the node has none, or in which its blocks are nearly
// full. A drained node claims none.
func (n *Networks) claim(ctx context.Context, s kv.Snapshot, node string) error {
	if self, _, err := record.Get[record.Node](s, record.Key(record.Nodes, node)); err != nil || self.Drained {
		return err
	}
	used := n.used()
	var errs []error
	for e := range s.Under(record.Networks) {
		r, err := record.Decode[record.Network](e)
		if err != nil || len(r.BlockBits) != len(r.Spec.Subnets) {
			continue // derive reports it
		}
		own := block.Own(s, r.Spec.Name, node)
		for i, sub := range r.Spec.Subnets {
			if !wants(sub.Prefix, r.BlockBits[i], own, used[r.Spec.Name]) {
				continue
			}
			p, err := block.Claim(ctx, n.cfg.Store, s, r.Spec.Name, node, i)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			n.cfg.Log.Info("block claimed", "network", r.Spec.Name, "block", p)
		}
	}
	return errors.Join(errs...)
}

// wants reports whether less than a quarter of a block is free in the node's blocks of a subnet.
func wants(subnet netip.Prefix, bits int, own []netip.Prefix, used []netip.Addr) bool {
	size := 1 << (subnet.Addr().BitLen() - bits)
	free := -1 // the host's own address
	for _, p := range own {
		if subnet.Overlaps(p) {
			free += size
		}
	}
	for _, a := range used {
		if slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(a) && subnet.Contains(a) }) {
			free--
		}
	}
	return free < size/4
}

// used returns the leased addresses of each network.
func (n *Networks) used() map[string][]netip.Addr {
	all := map[string][]netip.Addr{}
	for _, v := range n.cfg.Host.Attachments() {
		all[v.Network] = append(all[v.Network], v.Endpoint.Addresses...)
	}
	return all
}
