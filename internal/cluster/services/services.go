// Package services publishes the real servers of a host for the other nodes of its cluster, and changes
// the cluster's services. Package derive decides what the records mean, and package networks gives the
// services to the host.
//
// Theory of operation. Each node selects its own attachments and writes a record for each one that a
// service of the cluster has found. A record has what only that node knows: the address, and whether the
// container drains. It does not have the result of a check. Each node that uses a real server checks it
// on its own, because a server can be out of reach of one node only (package agreement compares what they
// find). So a server that fails causes no writes.
//
//	Host.Services ──► Run ──► reals/SVC/NODE/EP ──► store
//	SetService, RemoveService, Apply ──► svcs/SVC ──► store
//
// The host is not asked while the cluster has no services.
package services

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/publisher"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// Host is the daemon of this host.
type Host interface {
	Services() []api.ServiceView
}

// Config contains what Services needs.
type Config struct {
	Host Host
	// Store commits transactions of the node.
	Store kv.Committer
	// Changed receives a value when the host's real servers may have changed.
	Changed <-chan struct{}
	// Every is how long a failed transaction waits before it is repeated.
	Every time.Duration
	Log   *slog.Logger
}

// Services is the host's part of the cluster's services. It is a member.Consumer.
type Services struct {
	cfg       Config
	publisher *publisher.Publisher
	latest    member.Latest
}

var _ member.Consumer = (*Services)(nil)

// New returns Services without a snapshot. Run publishes.
func New(cfg Config) *Services {
	return &Services{cfg: cfg, publisher: publisher.New(publisher.Config{Prefix: record.Reals, Records: "real servers",
		Part: "cluster services", Store: cfg.Store, Changed: cfg.Changed, Every: cfg.Every, Log: cfg.Log})}
}

// Update takes over a snapshot, and returns the problem of the last transaction.
func (s *Services) Update(_ context.Context, self member.Self, u kv.Update) (problems []string) {
	own := s.publisher.Update(self.Node, u)
	s.latest.Replace(self, u.Snapshot)
	if own || slices.ContainsFunc(u.Changed, func(key string) bool { return strings.HasPrefix(key, record.Services) }) {
		s.publisher.Wake()
	}
	return s.publisher.Problems()
}

// Leave forgets the snapshot. The node's records are removed with the node.
func (s *Services) Leave() error {
	s.publisher.Leave()
	s.latest.Replace(member.Self{}, nil)
	return nil
}

// Run publishes the host's real servers until ctx ends.
func (s *Services) Run(ctx context.Context) {
	s.publisher.Run(ctx, func(ctx context.Context, _ bool) error { return s.publisher.Publish(ctx, s.wanted) })
}

// wanted returns the records of the host's real servers, by their keys.
func (s *Services) wanted(snapshot kv.Snapshot, node string) map[string][]byte {
	any := false
	snapshot.Under(record.Services)(func(kv.Entry) bool { any = true; return false })
	if !any {
		return nil
	}
	all := map[string][]byte{}
	for _, v := range s.cfg.Host.Services() {
		if _, exists := snapshot.Get(record.Key(record.Services, v.Name)); !exists || v.Origin != model.FromCluster {
			continue
		}
		for _, r := range v.Own {
			all[record.Key(record.Reals, v.Name, node, r.Endpoint)] = record.Encode(record.Real{Address: r.Address,
				Port: r.Port, Weight: r.Weight, Draining: r.Draining})
		}
	}
	return all
}
