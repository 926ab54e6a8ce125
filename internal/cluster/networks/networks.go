// Package networks gives a host its part of a cluster's networks and services: it claims blocks of
// addresses and single addresses of other nodes' blocks, derives both from snapshots, and publishes the
// host's own endpoints and its public keys of encrypted networks for the other nodes.
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
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/derive"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/publisher"
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
	// Prepare is called before overlays of the cluster change on the host; it may be nil.
	Prepare func()
	// Keys is the directory with the private keys of encrypted networks.
	Keys string
	// Store commits transactions of the node.
	Store kv.Committer
	// Peers asks other nodes whether they use an address.
	Peers Peers
	// Frozen returns why the host may not act as its node, and so leases no address; empty if it may. It may be nil.
	Frozen func() string
	// Containers reports the names of containers.
	Containers Containers
	// Changed receives a value when the host's attachments may have changed.
	Changed <-chan struct{}
	// KeyAge is the age at which a private key is replaced.
	KeyAge time.Duration
	// Every is how long a failed transaction waits before it is repeated.
	Every time.Duration
	Log   *slog.Logger
}

// Networks is the host's part of the cluster's networks. It is a member.Consumer.
type Networks struct {
	cfg        Config
	publisher  *publisher.Publisher
	containers *containers
	// attempts are those of Run to replace keys, by network.
	attempts map[string]attempts
	// lessor leases addresses for containers; it can be nil.
	lessor Lessor

	// mu protects the fields below.
	mu       sync.Mutex
	self     member.Self
	snapshot kv.Snapshot
	deriver  *derive.Deriver
	// claimed is the revision of the node's last claim. Claims wait for a snapshot that has it.
	claimed int64
	// applied is the revision of the networks that the host has. progress is closed when it changes.
	applied  int64
	progress chan struct{}
	// derived is what the last snapshot means for this host. refused are the problems of giving it to the host, which
	// was last tried at appliedAt.
	derived   derived
	refused   []string
	appliedAt time.Time
	// switched are the keys that replace those of the snapshot on this host, by network.
	switched map[string]switchedKey
	// reservations are the numbers of attachments in progress, by the addresses that they request, and reservedEver that
	// of all reservations so far.
	reservations map[place]int
	reservedEver int

	// applying is held while the host's networks change. It is locked before mu.
	applying sync.Mutex
}

// derived are the networks and services of a snapshot, without the files of private keys, and the problems of its
// records.
type derived struct {
	revision int64
	networks []model.Network
	services []model.VirtualService
	problems []string
}

var _ member.Consumer = (*Networks)(nil)

// New returns Networks without a snapshot. Run makes its transactions.
func New(cfg Config) *Networks {
	return &Networks{cfg: cfg, containers: newContainers(),
		publisher: publisher.New(publisher.Config{Prefix: record.Endpoints, Records: "endpoints",
			Part: "cluster networks", Store: cfg.Store, Changed: cfg.Changed, Every: cfg.Every, Log: cfg.Log}),
		progress: make(chan struct{}), reservations: map[place]int{}, switched: map[string]switchedKey{},
		attempts: map[string]attempts{}}
}

// Update applies the networks of a snapshot, and returns the problems. A snapshot that differs from the last one only
// in other records, such as those of virtual addresses, changes nothing on the host: what the host has refused is
// tried again, but not more often than Config.Every.
func (n *Networks) Update(_ context.Context, self member.Self, u kv.Update) (problems []string) {
	n.mu.Lock()
	differs := slices.ContainsFunc(u.Changed, derive.Reads)
	if n.deriver == nil || n.self != self {
		n.deriver, differs = derive.New(self.Node), true
	}
	if n.snapshot != nil && u.Snapshot.Revision() < n.snapshot.Revision() {
		n.claimed = 0 // the store was restored
		clear(n.switched)
	}
	n.self, n.snapshot = self, u.Snapshot
	n.forgetSwitched()
	concerned := n.publisher.Update(self.Node, u) || slices.ContainsFunc(u.Changed, concerns)
	if differs {
		n.derived.networks, n.derived.services, n.derived.problems = n.deriver.Update(u)
	}
	n.derived.revision = u.Snapshot.Revision()
	again := len(n.refused) > 0 && time.Since(n.appliedAt) >= n.cfg.Every
	n.mu.Unlock()
	if differs || again {
		n.apply()
	} else {
		n.progressed(u.Snapshot.Revision())
	}
	n.containers.need()
	if concerned {
		n.publisher.Wake()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Concat(n.derived.problems, n.refused, n.publisher.Problems())
}

// apply gives the host the networks and services of the last snapshot, and returns the problems.
func (n *Networks) apply() []string {
	n.applying.Lock()
	defer n.applying.Unlock()
	n.mu.Lock()
	d, s, self, switched := n.derived, n.snapshot, n.self.Node, maps.Clone(n.switched)
	n.mu.Unlock()
	if s == nil {
		return nil // the node has left meanwhile
	}
	networks := slices.Clone(d.networks)
	for i, network := range networks {
		if network.Traits().Overlay && n.cfg.Prepare != nil {
			n.cfg.Prepare()
		}
		if network.Overlay.Encrypt {
			networks[i] = n.withKey(network, s, self, switched[network.Name].public)
		}
	}
	problems := n.cfg.Host.SetCluster(networks, d.services)
	n.mu.Lock()
	n.refused, n.appliedAt = problems, time.Now()
	n.mu.Unlock()
	n.progressed(d.revision)
	return problems
}

// progressed notes that the host has the networks of a revision.
func (n *Networks) progressed(revision int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.applied = revision
	close(n.progress)
	n.progress = make(chan struct{})
}

// concerns reports whether Run may have something to do when a record of any node has changed.
func concerns(key string) bool {
	return slices.ContainsFunc([]string{record.Nodes, record.Networks, record.Keys, record.Moves, record.Blocks},
		func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Leave removes the networks of the cluster from the host. The node's records are removed with the
// node.
func (n *Networks) Leave() error {
	n.applying.Lock() // Run must not apply the networks of this cluster afterwards
	defer n.applying.Unlock()
	n.mu.Lock()
	n.snapshot, n.deriver, n.refused, n.derived = nil, nil, nil, derived{}
	n.forgetSwitched()
	n.claimed, n.applied = 0, 0 // another cluster has other revisions
	n.publisher.Leave()
	n.mu.Unlock()
	return n.cfg.Host.LeaveCluster()
}

// Run claims blocks and publishes endpoints until ctx ends.
func (n *Networks) Run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { n.containers.follow(ctx, n.cfg.Containers, n.publisher.Wake) })
	n.publisher.Run(ctx, n.step)
}

// step makes the transactions that the last snapshot and the host need.
func (n *Networks) step(ctx context.Context, _ bool) error {
	n.mu.Lock()
	s, node, claimed := n.snapshot, n.self.Node, n.claimed
	n.mu.Unlock()
	if s == nil {
		return nil
	}
	err := errors.Join(n.publisher.Publish(ctx, n.endpoints), n.publishKeys(ctx, s, node), n.publishMoves(ctx, s, node))
	if s.Revision() >= claimed {
		err = errors.Join(err, n.claim(ctx, s, node))
	}
	return err
}

// claim claims a block of each subnet in which the node has none, or in which its blocks are nearly
// full. A drained node claims none.
func (n *Networks) claim(ctx context.Context, s kv.Snapshot, node string) error {
	if self, _, err := record.Get[record.Node](s, record.Key(record.Nodes, node)); err != nil || self.Drained {
		return err
	}
	used := n.used()
	var errs []error
	for _, r := range record.Each[record.Network](s, record.Networks) { // derive reports the others
		own := block.Own(s, r.Spec.Name, node)
		for i, sub := range r.Spec.Subnets {
			if !wants(sub.Prefix, r.BlockBits[i], own, used[r.Spec.Name]) {
				continue
			}
			p, err := block.Claim(ctx, claims{n}, s, r.Spec.Name, node, i)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			n.cfg.Log.Info("block claimed", "network", r.Spec.Name, "block", p)
		}
	}
	return errors.Join(errs...)
}

// claims is the store for claims. It notes their revisions.
type claims struct{ *Networks }

// Commit implements kv.Committer.
func (c claims) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	result, err := c.cfg.Store.Commit(ctx, t)
	newest := int64(0)
	if result.Committed {
		newest = result.Revision
	}
	for _, e := range result.Current { // it can be an earlier claim, whose answer was lost
		newest = max(newest, e.Revision)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claimed = max(c.claimed, newest)
	return result, err
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
