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

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// The limits of a transaction that publishes real servers.
const (
	publishedAtOnce = 64
	publishLimit    = 5 * time.Second
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
	cfg  Config
	wake chan struct{}

	// mu protects the fields below.
	mu       sync.Mutex
	node     string
	snapshot kv.Snapshot
	// updated is closed when there is another snapshot.
	updated chan struct{}
	// published has the keys of the node's real servers in the snapshot.
	published map[string]bool
	// written is the revision of the last publication that put a record. The next one waits for a snapshot that
	// has it. A deletion has none if its first answer was lost, and is harmless if it is repeated.
	written int64
	// failed is the problem of the last transaction.
	failed string
}

var _ member.Consumer = (*Services)(nil)

// New returns Services without a snapshot. Run publishes.
func New(cfg Config) *Services {
	return &Services{cfg: cfg, wake: make(chan struct{}, 1), updated: make(chan struct{})}
}

// Update takes over a snapshot, and returns the problem of the last transaction.
func (s *Services) Update(_ context.Context, self member.Self, u kv.Update) (problems []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshot == nil || s.node != self.Node {
		s.published = map[string]bool{}
	} else if u.Snapshot.Revision() < s.snapshot.Revision() {
		s.written = 0 // the store was restored
	}
	s.node, s.snapshot = self.Node, u.Snapshot
	s.renew()
	if s.read(u) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	if s.failed != "" {
		return []string{s.failed}
	}
	return nil
}

// read takes over the keys of the node's real servers. It reports whether Run may have something to do:
// the real servers of other nodes do not concern this one.
func (s *Services) read(u kv.Update) (concerned bool) {
	for _, key := range u.Changed {
		names := record.Names(record.Reals, key, 3)
		switch {
		case strings.HasPrefix(key, record.Reals) && len(names) == 3 && names[1] == s.node:
			if _, exists := u.Snapshot.Get(key); exists {
				s.published[key] = true
			} else {
				delete(s.published, key)
			}
			concerned = true
		case strings.HasPrefix(key, record.Services), key == record.Key(record.Nodes, s.node):
			concerned = true
		}
	}
	return concerned
}

// renew notifies those who wait for another snapshot.
func (s *Services) renew() {
	close(s.updated)
	s.updated = make(chan struct{})
}

// Leave forgets the snapshot. The node's records are removed with the node.
func (s *Services) Leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot, s.published, s.failed = nil, nil, ""
	s.renew()
	s.written = 0 // another cluster has other revisions
	return nil
}

// Run publishes the host's real servers until ctx ends.
func (s *Services) Run(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-s.cfg.Changed:
		case <-tick.C:
		}
		s.note(ctx, s.publish(ctx))
	}
}

// note keeps the problem of a transaction. A store that does not answer is none: the member shows that.
func (s *Services) note(ctx context.Context, err error) {
	failed := ""
	if err != nil && ctx.Err() == nil && !errors.Is(err, kv.ErrUnavailable) && !errors.Is(err, kv.ErrUnknown) {
		failed = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed != "" && failed != s.failed {
		s.cfg.Log.Warn("cluster services", "error", err)
	}
	s.failed = failed
}

// publish makes the records of the node's real servers equal to those that the host has.
func (s *Services) publish(ctx context.Context) error {
	s.mu.Lock()
	snapshot, node, written, published := s.snapshot, s.node, s.written, slices.Sorted(maps.Keys(s.published))
	s.mu.Unlock()
	if snapshot == nil || snapshot.Revision() < written {
		return nil
	}
	self, exists := snapshot.Get(record.Key(record.Nodes, node))
	if !exists {
		return nil
	}
	for part := range slices.Chunk(changes(snapshot, published, s.wanted(snapshot, node)), publishedAtOnce) {
		limited, cancel := context.WithTimeout(ctx, publishLimit)
		t := kv.Txn{If: []kv.Condition{{Key: self.Key, Revision: self.Revision, Value: self.Value}}, Then: part}
		result, err := s.cfg.Store.Commit(limited, t)
		cancel()
		if err != nil {
			return fmt.Errorf("publish real servers: %w", err)
		}
		if !result.Committed {
			return nil // the next snapshot has another record of the node
		}
		if t.Puts() {
			s.mu.Lock()
			s.written = result.Revision
			s.mu.Unlock()
		}
	}
	return nil
}

// wanted returns the records of the host's real servers, by their keys.
func (s *Services) wanted(snapshot kv.Snapshot, node string) map[string]record.Real {
	any := false
	snapshot.Under(record.Services)(func(kv.Entry) bool { any = true; return false })
	if !any {
		return nil
	}
	all := map[string]record.Real{}
	for _, v := range s.cfg.Host.Services() {
		if _, exists := snapshot.Get(record.Key(record.Services, v.Name)); !exists || v.Origin != model.FromCluster {
			continue
		}
		for _, r := range v.Own {
			all[record.Key(record.Reals, v.Name, node, r.Endpoint)] = record.Real{Address: r.Address, Port: r.Port,
				Weight: r.Weight, Draining: r.Draining}
		}
	}
	return all
}

// changes returns what to put and delete, so that the node's records are these.
func changes(s kv.Snapshot, published []string, want map[string]record.Real) (all []kv.Change) {
	for _, key := range published {
		if _, wanted := want[key]; !wanted {
			all = append(all, kv.Change{Key: key})
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
