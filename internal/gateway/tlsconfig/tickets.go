package tlsconfig

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"sync"
	"time"
)

const (
	// ticketRotation is the time after which new session tickets get another key.
	ticketRotation = 24 * time.Hour
	// ticketKeys is the number of keys that are accepted: a ticket is valid for a week at
	// most (RFC 8446 4.6.1).
	ticketKeys = 7
)

// TicketKeys are the keys of TLS session tickets (RFC 8446 4.6.1, RFC 5077), the newest
// first. Whoever has them can decrypt recorded connections of TLS 1.2: they stay in
// memory.
type TicketKeys struct {
	Keys [][32]byte
	// Rotated is when the first key was made.
	Rotated time.Time
}

// Tickets gives the same keys to all configurations that use it, so that a session survives changes of
// the configuration and the replacement of the process.
type Tickets struct {
	mu   sync.Mutex
	now  TicketKeys
	used []*tls.Config
}

// NewTickets returns a new key.
func NewTickets() *Tickets {
	t := &Tickets{}
	t.rotate(time.Now())
	return t
}

// Use makes the configuration use the keys.
func (t *Tickets) Use(c *tls.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = append(t.used, c)
	c.SetSessionTicketKeys(t.now.Keys)
}

// Set replaces the keys, unless there are none.
func (t *Tickets) Set(to TicketKeys) {
	if len(to.Keys) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = to
	for _, c := range t.used {
		c.SetSessionTicketKeys(to.Keys)
	}
}

// Get returns the keys.
func (t *Tickets) Get() TicketKeys {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// rotate adds a new key if the newest is too old.
func (t *Tickets) rotate(now time.Time) {
	old := t.Get()
	// The time of day, because the monotonic clock stops while the host is suspended. It can be set back.
	age := now.Round(0).Sub(old.Rotated.Round(0))
	if len(old.Keys) > 0 && age >= 0 && age < ticketRotation {
		return
	}
	var key [32]byte
	_, _ = rand.Read(key[:]) // it never fails
	keys := append([][32]byte{key}, old.Keys...)
	t.Set(TicketKeys{Keys: keys[:min(len(keys), ticketKeys)], Rotated: now})
}

// Follow rotates the keys until the context ends.
func (t *Tickets) Follow(ctx context.Context) {
	every := time.NewTicker(ticketRotation / 24)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-every.C:
			t.rotate(now)
		}
	}
}
