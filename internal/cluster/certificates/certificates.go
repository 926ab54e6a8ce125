// Package certificates is the storage that the gateways of a cluster share: accounts, keys and
// certificates of ACME resolvers, locks, so that one node at a time obtains a certificate, and
// challenges, which all gateways answer. It neither speaks ACME nor serves clients.
//
// Theory of operation. All values are records, encrypted with a key that only nodes have. They are read
// from the newest snapshot, so certificates are there without etcd, too. Each value has a lock, and a
// transaction that changes the value depends on the revision of the lock's record: who has lost the lock
// changes nothing any more. The holder renews the record while it works. Another node that has seen no
// change of it for Lapse, by its own clock, replaces it. No time of another host is compared.
//
//	gateway ──► Try, Store, Present ──► transactions
//	gateway ◄── changed keys ◄── Run ◄── Update ◄── snapshots
//
// A challenge is published as a record. The publishing node then asks the others whether their gateways
// use the snapshot with it, and waits for those that are alive.
package certificates

import (
	"context"
	"crypto/rand"
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
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// Purpose is that of the box that encrypts the values.
const Purpose = "certificates"

// The times of locks.
const (
	// renewEvery is how often a holder renews the record of its lock.
	renewEvery = 2 * time.Second
	// Lapse is how long a lock is not renewed before another node takes it.
	Lapse = 10 * time.Second
	// tryAgain is how long the gateway waits after a transaction that failed.
	tryAgain = 5 * time.Second
	// releaseLimit limits the transactions after an attempt.
	releaseLimit = 5 * time.Second
)

// errNoCluster is the error of a host without a cluster.
var errNoCluster = errors.New("this host belongs to no cluster: run `fairlead cluster init` or `fairlead cluster " +
	"join`, or set another storage")

// errNoRecords is the error of a node without a snapshot.
var errNoRecords = errors.New("this host has no records of the cluster yet: see `fairlead cluster status`")

// Peers asks other nodes.
type Peers interface {
	Peer(ctx context.Context, id, kind string, question, into any) error
}

// Recalled is what a node knows before the first update.
type Recalled struct {
	Self     member.Self
	Box      *trust.Box
	Snapshot kv.Snapshot
}

// Config contains what Certificates need.
type Config struct {
	// Store commits transactions of the node.
	Store kv.Committer
	Peers Peers
	// Box returns the box of the cluster. It is called with the first update.
	Box func() (*trust.Box, error)
	// Recall returns what an earlier process has left; its snapshot is nil if that is nothing. A gateway
	// that starts before the first update has its certificates at once.
	Recall func() (Recalled, error)
	Log    *slog.Logger
}

// Certificates is the host's part of the storage. It is a certmagic.Storage, an acme.Shared and a
// member.Consumer. Its methods may be called concurrently.
type Certificates struct {
	cfg  Config
	wake alarm.Signal
	// process identifies this process in the records of locks.
	process string

	// mu protects the fields below.
	mu       sync.Mutex
	self     member.Self
	box      *trust.Box
	snapshot kv.Snapshot
	// advanced is closed when the snapshot or applied changes.
	advanced chan struct{}
	// seen has the locks of the snapshot, by their names.
	seen map[string]seen
	held map[string]*lock
	// waits are the times at which locks that were refused may be free, by their names.
	waits map[string]time.Time
	// broken are the records that cannot be opened.
	broken map[string]string
	// changed is called by Run with the keys that the gateway does not have; nil if there is no gateway.
	changed func(context.Context, []string) error
	// gateways counts the calls of Follow.
	gateways int
	missing  map[string]bool
	// retry is set after changed has failed.
	retry bool
	// applied is the revision of the snapshot that the gateway uses.
	applied int64
}

// seen is when the node has seen the last change of a lock.
type seen struct {
	revision int64
	at       time.Time
}

var _ member.Consumer = (*Certificates)(nil)

// New returns Certificates without a snapshot.
func New(cfg Config) *Certificates {
	return &Certificates{cfg: cfg, wake: alarm.NewSignal(), process: rand.Text(), advanced: make(chan struct{}),
		seen: map[string]seen{}, held: map[string]*lock{}, waits: map[string]time.Time{}, broken: map[string]string{},
		missing: map[string]bool{}}
}

// Update takes over a snapshot, and returns the records that cannot be opened.
func (c *Certificates) Update(_ context.Context, self member.Self, u kv.Update) (problems []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.box == nil || c.self != self {
		box, err := c.cfg.Box()
		if err != nil {
			return []string{fmt.Sprintf("certificates: %v", err)}
		}
		c.box = box
	}
	c.self, c.snapshot = self, u.Snapshot
	c.advance()
	for _, key := range u.Changed {
		c.note(key)
	}
	if len(c.missing) > 0 {
		c.wake.Send()
	}
	for _, key := range slices.Sorted(maps.Keys(c.broken)) {
		problems = append(problems, c.broken[key])
	}
	return problems
}

// note takes over one changed record of the snapshot.
func (c *Certificates) note(key string) {
	name, isLock := strings.CutPrefix(key, record.CertificateLocks)
	if isLock {
		e, exists := c.snapshot.Get(key)
		if c.seen[name] = (seen{e.Revision, time.Now()}); !exists {
			delete(c.seen, name)
		}
		if _, waits := c.waits[name]; waits {
			c.retryAt(name, c.free(name))
		}
		return
	}
	if !strings.HasPrefix(key, record.Certificates) && !strings.HasPrefix(key, record.Challenges) {
		return
	}
	c.missing[key] = true
	delete(c.broken, key)
	if e, exists := c.snapshot.Get(key); exists {
		if _, err := c.open(e); err != nil {
			c.broken[key] = fmt.Sprintf("certificates: %v", err)
			c.cfg.Log.Warn("a record of certificates cannot be used", "error", err)
		}
	}
}

// open decrypts a record. The caller has the lock.
func (c *Certificates) open(e kv.Entry) ([]byte, error) {
	value, err := record.Decode[record.Sealed](e)
	if err != nil {
		return nil, err
	}
	plain, err := c.box.Open(e.Key, value.Sealed)
	if err != nil {
		return nil, fmt.Errorf("read record %s: %w", e.Key, err)
	}
	return plain, nil
}

// advance wakes those who wait for the snapshot or the gateway. The caller has the lock.
func (c *Certificates) advance() {
	close(c.advanced)
	c.advanced = make(chan struct{})
}

// Leave forgets everything of the cluster. The gateway loses its certificates.
func (c *Certificates) Leave() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshot != nil {
		c.missAll()
	}
	for _, l := range c.held {
		l.lose(errNoCluster)
	}
	c.self, c.box, c.snapshot, c.applied = member.Self{}, nil, nil, 0
	clear(c.seen)
	clear(c.broken)
	c.advance()
	c.wake.Send()
	return nil
}

// missAll notes that the gateway has none of the records. The caller has the lock.
func (c *Certificates) missAll() {
	for _, prefix := range []string{record.Certificates, record.Challenges} {
		for e := range c.snapshot.Under(prefix) {
			c.missing[e.Key] = true
		}
	}
}

// Follow calls changed with the keys of values that have changed, and without keys when a lock that was
// refused may be free, until stop is called. It must return when the gateway uses the values. If the host
// is a node and there was no update yet, Follow uses the snapshot that an earlier process has left.
func (c *Certificates) Follow(changed func(context.Context, []string) error) (stop func()) {
	c.recall()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed, c.applied = changed, 0
	if c.snapshot != nil {
		c.missAll()
	}
	c.wake.Send()
	c.gateways++
	mine := c.gateways
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.gateways == mine {
			c.changed = nil
			c.advance()
		}
	}
}

// recall takes over what an earlier process has left, if there was no update yet. It reads without the mutex: a
// file that another process has open makes it wait.
func (c *Certificates) recall() {
	if c.known() {
		return
	}
	was, err := c.cfg.Recall()
	if err != nil {
		c.cfg.Log.Warn("the gateway begins without the certificates of the cluster", "error", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshot == nil && err == nil && was.Snapshot != nil {
		c.self, c.box, c.snapshot = was.Self, was.Box, was.Snapshot
	}
}

// known reports whether there is a snapshot.
func (c *Certificates) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshot != nil
}

// Run brings changes to the gateway until ctx ends.
func (c *Certificates) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-time.After(c.untilRetry()):
		}
		c.deliver(ctx)
	}
}

// untilRetry returns the time until the gateway may have something to do although nothing changes.
func (c *Certificates) untilRetry() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := time.Hour
	if c.retry {
		wait = time.Second
	}
	for _, at := range c.waits {
		wait = min(wait, max(0, time.Until(at)))
	}
	return wait
}

// deliver gives the gateway the changed keys, and says when locks may be free.
func (c *Certificates) deliver(ctx context.Context) {
	c.mu.Lock()
	free := false
	for name, at := range c.waits {
		if !time.Now().Before(at) {
			free = true
			delete(c.waits, name)
		}
	}
	changed, missing, revision := c.changed, c.missing, int64(0)
	if c.snapshot != nil {
		revision = c.snapshot.Revision()
	}
	c.retry = false
	if changed == nil || len(missing) == 0 && !free {
		c.mu.Unlock()
		return
	}
	c.missing = map[string]bool{}
	mine := c.gateways
	c.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		keys = append(keys, strings.TrimPrefix(key, record.Certificates))
	}
	err := changed(ctx, keys)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		maps.Copy(c.missing, missing)
		c.retry = true
	case c.gateways == mine:
		c.applied = max(c.applied, revision)
		c.advance()
	}
}
