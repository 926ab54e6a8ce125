package acme

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fairlead/internal/model/gateway"

	"github.com/caddyserver/certmagic"
	protocol "github.com/mholt/acmez/v3/acme"
)

// Shared is a storage that the gateways of several hosts use at the same time. A value may only be changed by
// the gateway that has its lock: the key of the certificate, also for its attempts, or that of the account.
type Shared interface {
	certmagic.Storage
	// Try takes a lock for as long as ctx lasts and it is not lost; held ends then, with the cause.
	// interrupted is how many gateways in a row had the lock before and have ended without releasing it. Returns
	// gateway.Busy (errors.As) if another one has it. After an error, Refresh is called when another attempt
	// makes sense.
	Try(ctx context.Context, name string) (held context.Context, interrupted int, err error)
	// Present makes all gateways answer a challenge of the certificate whose lock this one has.
	Present(ctx context.Context, lock string, c gateway.Challenge) error
	CleanUp(ctx context.Context, lock string, c gateway.Challenge) error
	// Challenges returns what all gateways answer.
	Challenges() []gateway.Challenge
}

// errNotShared is the problem of a resolver whose storage the gateway does not have.
var errNotShared = errors.New("storage cluster: only the gateway that fairlead.yaml declares has it: for a file of " +
	"this name, set ./cluster")

// errInterrupted is the failure of an attempt that no gateway has completed.
var errInterrupted = errors.New("the gateways that tried have ended during the attempt")

// mostInterrupted is how many gateways may end during an attempt before it counts as failed.
const mostInterrupted = 2

// tryShared makes one attempt, unless the gateway of another host makes it or has made it.
func (m *Manager) tryShared(ctx context.Context, c *certificate) {
	r := m.resolvers[c.resolver]
	lock := r.store.key(certificateKind, idOf(c.names))
	held, interrupted, err := r.shared.Try(ctx, lock)
	if err != nil {
		m.wait(ctx, c, err)
		return
	}
	defer func() {
		if err := r.shared.Unlock(ctx, lock); err != nil {
			m.Log.Warn("another host can obtain the certificate a while later", "names", strings.Join(c.names, ","),
				"error", err)
		}
	}()
	m.mu.Lock()
	m.read(r, lock) // what the last holder has written
	due := time.Until(c.next()) <= 0
	c.running = due
	m.mu.Unlock()
	if !due {
		_ = m.Changed(ctx) // it reports its errors itself
		return
	}
	m.attempt(ctx, held, c, interrupted)
}

// wait notes why an attempt cannot begin. Refresh ends the wait.
func (m *Manager) wait(ctx context.Context, c *certificate, why error) {
	m.mu.Lock()
	same := c.waiting != nil && c.waiting.Error() == why.Error()
	c.running, c.waiting, c.blocked = false, why, true
	m.mu.Unlock()
	if same || ctx.Err() != nil {
		return
	}
	if !isBusy(why) {
		m.Log.Warn("a certificate waits", "names", strings.Join(c.names, ","), "error", why)
	}
	_ = m.Changed(ctx) // it reports its errors itself
}

// Refresh reads values of shared storages again, by their keys, and repeats attempts that wait.
func (m *Manager) Refresh(keys []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	read := map[string]bool{}
	for _, key := range keys {
		resolver, kind, id, err := split(key)
		if err != nil || kind == accountKind || m.resolvers[resolver] == nil || m.resolvers[resolver].shared == nil {
			continue
		}
		r := m.resolvers[resolver]
		if key = r.store.key(certificateKind, id); !read[key] {
			read[key] = true
			m.read(r, key)
		}
	}
	for _, c := range m.certificates {
		c.blocked = false
	}
	m.awake()
}

// read reads a certificate and its attempts again, by the key of the certificate. One that cannot be used
// changes nothing: the one before stays in use.
func (m *Manager) read(r *resolver, key string) {
	_, _, id, err := split(key)
	if err != nil {
		return
	}
	var s stored
	exists, err := r.store.load(context.Background(), &s, certificateKind, id)
	var h *held
	if exists && err == nil {
		h, err = hold(s)
	}
	if h != nil && h.id() != id {
		err = fmt.Errorf("the stored certificate %s has the names %s", id, strings.Join(h.names(), ", "))
	}
	if err != nil {
		m.Log.Warn("a stored certificate cannot be used", "resolver", r.store.resolver, "error", err)
	} else {
		for set, old := range r.stored {
			if old.id() == id {
				delete(r.stored, set)
			}
		}
		if h != nil {
			r.stored[setOf(h.names())] = h
		}
	}
	for _, c := range m.certificates {
		if m.resolvers[c.resolver] != r {
			continue
		}
		m.choose(r, c)
		if idOf(c.names) == id {
			c.waiting = nil
			m.readAttempt(r, c)
		}
	}
}

// sharedSolver publishes challenges of HTTP-01 and TLS-ALPN-01 for all gateways.
type sharedSolver struct {
	shared Shared
	lock   string
}

// Present implements acmez.Solver.
func (s sharedSolver) Present(ctx context.Context, c protocol.Challenge) error {
	value, err := challengeOf(c)
	if err != nil {
		return err
	}
	return s.shared.Present(ctx, s.lock, value)
}

// CleanUp implements acmez.Solver.
func (s sharedSolver) CleanUp(ctx context.Context, c protocol.Challenge) error {
	value := gateway.Challenge{Token: c.Token}
	if c.Type == protocol.ChallengeTypeTLSALPN01 {
		value = gateway.Challenge{Name: c.Identifier.Value}
	}
	return s.shared.CleanUp(ctx, s.lock, value)
}

// challengeOf returns what the gateways answer.
func challengeOf(c protocol.Challenge) (gateway.Challenge, error) {
	if c.Type != protocol.ChallengeTypeTLSALPN01 {
		return gateway.Challenge{Token: c.Token, KeyAuthorization: c.KeyAuthorization}, nil
	}
	certificate, err := challengeCertificate(c)
	return gateway.Challenge{Name: c.Identifier.Value, Certificate: certificate}, err
}

// addShared adds the challenges of a shared storage to a configuration.
func addShared(all []gateway.Challenge, to *gateway.ACME) {
	for _, c := range all {
		if c.Token != "" {
			to.Tokens[c.Token] = c.KeyAuthorization
		}
		if c.Name != "" {
			to.Challenges[c.Name] = c.Certificate
		}
	}
}

// isBusy reports whether the gateway of another host obtains a certificate.
func isBusy(err error) bool { return errors.As(err, new(gateway.Busy)) }
