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
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/gateway/acme/dns"
	"fairlead/internal/model/gateway"

	"github.com/caddyserver/certmagic"
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
	wake       alarm.Signal
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
		wake: alarm.NewSignal(), slots: make(chan struct{}, mostAttempts), certificates: map[string]*certificate{}}
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
