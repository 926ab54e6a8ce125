package acme

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// choose makes the best stored certificate the one in use.
func (m *Manager) choose(r *resolver, c *certificate) {
	c.renewal = time.Time{}
	if c.held = r.find(c.names); c.held != nil && (r.problem != "" || c.held.isFrom(r.value.CAServer)) {
		c.renewal = renewalOf(c.held.leaf)
	}
}

// readAttempt reads the record of failed attempts. One with other settings than at the beginning does not
// count; a later one is of the gateway of another host, with its settings.
func (m *Manager) readAttempt(r *resolver, c *certificate) {
	var a attempt
	ok, err := r.store.load(context.Background(), &a, attemptKind, idOf(c.names))
	if err != nil {
		m.Log.Warn("cannot read when a certificate was tried last", "names", strings.Join(c.names, ","), "error", err)
		return
	}
	if ok && a.Settings != r.settings && c.void.IsZero() {
		c.void = a.At
	}
	if c.attempt = a; !ok || a.At.Equal(c.void) {
		c.attempt = attempt{}
	}
	if c.void.IsZero() {
		c.void = time.Unix(0, 0)
	}
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
	m.wake.Send()
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

// find returns the stored certificate that is valid for the names, and if there are several,
// the one that is valid for the longest time.
func (r *resolver) find(names []string) (best *held) {
	for _, key := range slices.Sorted(maps.Keys(r.stored)) {
		if h := r.stored[key]; h.isValidFor(names) && (best == nil || h.leaf.NotAfter.After(best.leaf.NotAfter)) {
			best = h
		}
	}
	return best
}
