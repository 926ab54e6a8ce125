package member

import (
	"context"
	"crypto/x509"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// TestRenewAfterClockWasWrong issues a node's certificate while the clock is wrong, and then sets the clock. The
// certificate is renewed soon.
func TestRenewAfterClockWasWrong(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, wrong := range map[string]time.Duration{"a clock without a battery": -30 * year, "a year ahead": year,
		"suspended for a week": -7 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var offset atomic.Int64
				offset.Store(int64(wrong))
				now := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
				m := renewing(t, now)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); renewal{m}.renew(ctx) }()
				defer func() { cancel(); <-ended }()
				synctest.Wait()
				offset.Store(0)
				time.Sleep(alarm.Longest + time.Second) // of the bubble's clock
				synctest.Wait()
				c, err := x509.ParseCertificate(m.self().Certificate)
				if err != nil {
					t.Fatal(err)
				}
				if c.NotBefore.After(now()) || c.NotAfter.Before(now()) {
					t.Errorf("at %s the certificate is valid from %s to %s", now(), c.NotBefore, c.NotAfter)
				}
			})
		})
	}
}

// renewing returns a Member with a certificate of now, and what it needs to renew it.
func renewing(t *testing.T, now func() time.Time) *Member {
	t.Helper()
	m, err := New(Config{Dir: t.TempDir(), Now: now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFile(phaseMember)
	if err == nil {
		err = f.newAuthority(m)
	}
	if err == nil {
		err = m.set(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.snapshot = kv.NewTable(2, []kv.Entry{
		{Key: record.CAKey, Value: record.Encode(record.Authority{Sealed: f.Sealed}), Revision: 1},
		{Key: record.Key(record.Nodes, f.Node), Value: record.Encode(record.Node{ID: f.Node}), Revision: 2}})
	return m
}
