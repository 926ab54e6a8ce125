// Package acme obtains and renews the certificates that routers ask resolvers for, by ACME
// (RFC 8555). It runs where the gateway is controlled; the entry points only get values:
// certificates, and answers to challenges.
//
// Theory of operation. Complete reads from each configuration which certificates its routers
// want, and adds those that there are. A loop starts an attempt for each certificate that is
// missing, or at two thirds of its life. An attempt publishes its challenges by a change of
// the configuration, and waits until that is in use. Certificates, accounts and failed
// attempts are in the storage, Traefik's acme.json: after a restart nothing is obtained
// twice, and no attempt comes earlier than it would have.
package acme

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/gateway/acme/dns"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"

	"github.com/caddyserver/certmagic"
	protocol "github.com/mholt/acmez/v3/acme"
)

// Options are what a Manager needs.
type Options struct {
	Static gateway.Static
	Log    *slog.Logger
	// Changed is called when Complete would add something else than before. It returns when
	// the entry points use it. No lock of the Manager is held.
	Changed func(context.Context) error
	// Shared is the storage of resolvers whose storage is gateway.StorageCluster; nil if there is none.
	Shared Shared
	// Backoff are the waits after failed attempts. Nil means the default.
	Backoff []time.Duration
}

// Manager obtains and renews certificates.
type Manager struct {
	Options
	challenges *challenges
	resolvers  map[string]*resolver
	wake       chan struct{}
	// slots limit the attempts at the same time.
	slots   chan struct{}
	working sync.WaitGroup

	// mu protects what follows.
	mu           sync.Mutex
	certificates map[string]*certificate
	rules        rules
}

// resolver obtains certificates from an authority.
type resolver struct {
	*authority
	store store
	// shared is the storage if several gateways use it.
	shared Shared
	dns    *dns.Solver
	// settings identify the resolver's settings.
	settings string
	// problem says why it cannot obtain certificates.
	problem string
	// stored are the certificates in the storage when the gateway started, and new ones.
	stored map[string]*held
}

// certificate is a wanted certificate with its state.
type certificate struct {
	wanted
	held    *held
	attempt attempt
	renewal time.Time
	running bool
	// waiting is why the last attempt with a shared storage has not begun. No other begins while blocked.
	waiting error
	blocked bool
	// void is when an attempt with other settings was made, which does not count.
	void time.Time
}

// mostAttempts is the number of attempts at the same time.
const mostAttempts = 4

// New opens the storages of all resolvers and reads what they have. A resolver whose settings
// or storage cannot be used obtains nothing; the state of its certificates says why.
func New(o Options) *Manager {
	o.Backoff = slices.Clone(o.Backoff)
	if len(o.Backoff) == 0 {
		o.Backoff = defaultBackoff
	}
	m := &Manager{Options: o, challenges: newChallenges(o.Changed), resolvers: map[string]*resolver{},
		wake: make(chan struct{}, 1), slots: make(chan struct{}, mostAttempts), certificates: map[string]*certificate{}}
	storages := map[string]certmagic.Storage{}
	for _, name := range slices.Sorted(maps.Keys(o.Static.Resolvers)) {
		r := newResolver(name, *o.Static.Resolvers[name], storages, o)
		if m.resolvers[name] = r; r.problem != "" {
			o.Log.Error("a certificate resolver cannot be used", "resolver", name, "error", r.problem)
		}
	}
	return m
}

func newResolver(name string, value gateway.Resolver, storages map[string]certmagic.Storage, o Options) *resolver {
	r := &resolver{stored: map[string]*held{}}
	path := cmp.Or(value.Storage, "acme.json")
	if path == gateway.StorageCluster {
		if r.shared = o.Shared; r.shared == nil {
			r.problem = errNotShared.Error()
			return r
		}
		storages[path] = r.shared
	}
	if storages[path] == nil {
		s, err := openStorage(path)
		if err != nil {
			r.problem = err.Error()
			return r
		}
		storages[path] = s
	}
	r.store = store{storages[path], name}
	found, errs := r.store.certificates(context.Background())
	for _, h := range found {
		r.stored[setOf(h.names())] = h
	}
	for _, err := range errs {
		o.Log.Warn("a stored certificate cannot be used", "resolver", name, "error", err)
	}
	var err error
	var variables []string
	if r.authority, err = newAuthority(value, r.store, o.Log); r.authority != nil {
		r.replaceAccount = r.shared != nil
	}
	if err == nil && value.DNSChallenge != nil {
		r.dns, variables, err = dns.New(*value.DNSChallenge)
	}
	if err != nil {
		r.problem = err.Error()
		return r
	}
	text, err := json.Marshal([]any{value, variables})
	if err != nil {
		panic(err) // the values are texts and numbers
	}
	sum := sha256.Sum256(text)
	r.settings = hex.EncodeToString(sum[:8])
	return r
}

// Run obtains and renews certificates until the context ends.
func (m *Manager) Run(ctx context.Context) {
	defer m.working.Wait()
	for {
		timer := time.NewTimer(m.startDue(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-m.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// startDue starts the attempts that are due, and returns the time until the next one is.
func (m *Manager) startDue(ctx context.Context) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	sleep := alarm.Longest // the clock of the host may be set, or the host suspended
	for _, key := range slices.Sorted(maps.Keys(m.certificates)) {
		c := m.certificates[key]
		if c.running || c.blocked || c.problem != "" {
			continue
		}
		if wait := time.Until(c.next()); wait > 0 {
			sleep = min(sleep, wait)
			continue
		}
		select {
		case m.slots <- struct{}{}:
		default:
			return sleep // an attempt that ends wakes the loop
		}
		c.running = true
		m.working.Go(func() {
			defer m.awake()
			defer func() { <-m.slots }()
			m.tryCarefully(ctx, c)
		})
	}
	return sleep
}

func (m *Manager) awake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// next returns when the next attempt is due.
func (c *certificate) next() time.Time {
	next := time.Time{}
	if c.held != nil {
		next = c.renewal
	}
	if c.attempt.Failures > 0 && c.attempt.Next.After(next) {
		next = c.attempt.Next
	}
	return next
}

// tryCarefully makes one attempt, and notes one that panics as failed. An attempt calls nothing that can panic while it
// has locked mu, and the storage has had it as failed since it began.
func (m *Manager) tryCarefully(ctx context.Context, c *certificate) {
	err := recovery.Object("certificate for "+strings.Join(c.names, ", "), func() { m.try(ctx, c) })
	if err == nil {
		return
	}
	m.mu.Lock()
	c.running, c.attempt = false, c.attempt.fail(time.Now(), m.Backoff, err.Error(), 0)
	m.mu.Unlock()
	_ = m.Changed(ctx) // shows the state
}

// try makes one attempt.
func (m *Manager) try(ctx context.Context, c *certificate) {
	if m.resolvers[c.resolver].shared != nil {
		m.tryShared(ctx, c)
		return
	}
	m.attempt(ctx, ctx, c, 0)
}

// attempt makes one attempt while lock lasts. It is stored as failed before it begins: a gateway that fails
// during attempts and is started again must not repeat them at once. In a shared storage, the lock that
// such a gateway leaves has the same purpose.
func (m *Manager) attempt(ctx, lock context.Context, c *certificate, interrupted int) {
	r := m.resolvers[c.resolver]
	id := idOf(c.names)
	m.mu.Lock()
	before, old := c.attempt, c.held
	m.mu.Unlock()
	begun := before
	begun.Names, begun.Settings = c.names, r.settings
	_ = m.Changed(ctx) // shows the state; the attempt goes on without it
	mayLog := func(err error) {
		if err != nil {
			m.Log.Error("cannot write the storage of certificates", "resolver", c.resolver, "error", err)
		}
	}
	if r.shared == nil {
		mayLog(r.store.save(ctx, begun.fail(time.Now(), m.Backoff, "the gateway ended during the attempt", 0),
			attemptKind, id))
	}
	limits := &retryAfter{}
	var got *held
	err := errInterrupted
	if interrupted < mostInterrupted {
		got, err = m.obtain(lock, r, c.names, old, limits)
	}
	lasting := context.WithoutCancel(ctx)
	if err == nil {
		err = r.store.save(lasting, got.stored, certificateKind, id)
	}
	switch {
	case err == nil:
		begun = attempt{}
		mayLog(r.store.Delete(lasting, r.store.key(attemptKind, id)))
		m.Log.Info("obtained a certificate", "names", strings.Join(c.names, ","), "resolver", c.resolver, "until",
			got.leaf.NotAfter)
	case lock.Err() != nil && ctx.Err() == nil: // another gateway makes the next attempt
		m.wait(ctx, c, fmt.Errorf("%w: %w", err, context.Cause(lock)))
		return
	case ctx.Err() != nil: // the gateway stops: the attempt does not count
		begun = before
		switch {
		case r.shared != nil: // nothing was stored
		case before.Failures > 0:
			mayLog(r.store.save(lasting, before, attemptKind, id))
		default:
			mayLog(r.store.Delete(lasting, r.store.key(attemptKind, id)))
		}
	default:
		begun = begun.fail(time.Now(), m.Backoff, err.Error(), limits.get())
		mayLog(r.store.save(lasting, begun, attemptKind, id))
		m.Log.Error("cannot obtain a certificate", "names", strings.Join(c.names, ","), "resolver", c.resolver,
			"error", err, "next attempt", begun.Next)
	}
	m.mu.Lock()
	c.running, c.attempt = false, begun
	if got != nil {
		r.stored[setOf(c.names)] = got
		c.held, c.renewal = got, renewalOf(got.leaf)
	}
	m.mu.Unlock()
	_ = m.Changed(lasting) // it reports its errors itself
}

// longestAttempt limits an attempt: records of DNS may take minutes to be seen.
const longestAttempt = 15 * time.Minute

// obtain obtains a certificate.
func (m *Manager) obtain(ctx context.Context, r *resolver, names []string, old *held, limits *retryAfter) (*held,
	error) {
	ctx, cancel := context.WithTimeout(ctx, longestAttempt)
	defer cancel()
	client := r.client(limits)
	client.ChallengeSolvers = m.challenges.solvers(r.value, r.dns.AsSolver())
	if r.shared != nil {
		solver := sharedSolver{r.shared, r.store.key(certificateKind, idOf(names))}
		for _, kind := range []string{protocol.ChallengeTypeHTTP01, protocol.ChallengeTypeTLSALPN01} {
			if client.ChallengeSolvers[kind] != nil {
				client.ChallengeSolvers[kind] = solver
			}
		}
	}
	got, err := r.issue(ctx, client, names, old)
	if err != nil {
		return nil, fmt.Errorf("obtain a certificate from %s: %w", r.value.CAServer, err)
	}
	return got, nil
}
