package mirror

import (
	"context"
	"errors"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
)

const (
	// writeRecent is for how long a transaction that the store has executed shows that it accepts others.
	writeRecent = 3 * time.Second
	// probeLimit is how long the store has for the transaction of Health.
	probeLimit = 2 * time.Second
)

// Health describes the store's servers, and the connection to them. If the store has executed no transaction with
// changes in the last seconds, Health commits the probe to find out whether it does. The probe must have a condition
// that is never true: etcd refuses it without the permission or the room to make its changes, and it changes nothing.
func (m *Mirror) Health(ctx context.Context, probe kv.Txn) api.EtcdHealth {
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		m.probe(ctx, probe)
	}()
	servers := m.source().Servers(ctx)
	<-probed
	m.mu.Lock()
	defer m.mu.Unlock()
	h := api.EtcdHealth{Connected: m.connected, Since: m.since, Revision: m.table.Revision(), Frozen: m.frozen,
		Servers: servers}
	switch {
	case !m.connected && m.why != nil:
		h.Problem = cause(m.why)
		if !errors.Is(m.why, kv.ErrUnavailable) && !errors.Is(m.why, errStale) {
			h.Refused = h.Problem
		}
	case m.connected && m.frozen == "" && m.wrote != nil:
		h.Refused = cause(m.wrote)
	}
	return h
}

// probe commits a transaction unless the outcome is known.
func (m *Mirror) probe(ctx context.Context, t kv.Txn) {
	m.mu.Lock()
	known := m.frozen != "" || !m.connected || m.wrote == nil && time.Since(m.wroteAt) < writeRecent
	m.mu.Unlock()
	if known {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	_, _ = m.Commit(ctx, t) // which notes the outcome
}

// noteWrite notes the outcome of a transaction with changes.
func (m *Mirror) noteWrite(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrote, m.wroteAt = err, time.Now()
}

// cause returns the text of an error without what the caller says anyway.
func cause(err error) string {
	text := err.Error()
	if _, reason, found := strings.Cut(text, kv.ErrUnavailable.Error()+": "); found {
		return reason
	}
	return strings.TrimPrefix(strings.TrimPrefix(text, "commit transaction: "), "list entries: ")
}
