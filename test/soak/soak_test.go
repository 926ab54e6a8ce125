// Package soak_test uses publish mode ebpf for a longer time, with conversations that must not
// break, short connections, publishes that change all the time, and an engine that is killed
// repeatedly. At the end nothing may be left over. It does not measure speed.
//
// # Theory of operation
//
// Workloads and clients are goroutines of this process, each with sockets in a separate namespace.
// The server host's engine is a child process, to which the parent sends one desired state after
// another. The parent therefore always knows which workload may answer on which port, and outlives
// every engine.
//
//	conversations ──┐                         ┌── web, api (bridge)
//	newcomers ──────┼── published host ports ─┤
//	churn ── engine ┘   (pinned programs)     └── far, box (routed)
package soak_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/proxy"
	"fairlead/test/daemons"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main, engineRole: engineMain, daemons.Role: daemons.Main})
	os.Exit(m.Run())
}

// The duration of the test under `go test`, and the length of a cycle of the long test. After each
// cycle the engine is killed.
const (
	shortSoak  = 5 * time.Second
	shortCycle = 2 * time.Second
	longCycle  = time.Minute
)

// lengths returns how long the test runs, and how often it kills the engine.
func lengths() (whole, cycle time.Duration, err error) {
	text := os.Getenv("SOAK_DURATION")
	if text == "" {
		return shortSoak, shortCycle, nil
	}
	if whole, err = time.ParseDuration(text); err != nil || whole <= 0 {
		return 0, 0, fmt.Errorf("read SOAK_DURATION %q: want a duration such as 30m", text)
	}
	return whole, min(longCycle, whole/2), nil
}

func TestSoak(t *testing.T) {
	whole, cycle, err := lengths()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	r := newRoom(t, w, cycle)
	talks := converse(t, w)
	newcomers := &newcomers{world: w, ledger: r.ledger}
	seen := newEvents(t, w)

	ctx, stop := context.WithCancel(t.Context())
	var loads sync.WaitGroup
	for _, talk := range talks {
		loads.Go(func() { talk.run(ctx) })
	}
	loads.Go(func() { newcomers.run(ctx) })
	churning, still := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	churn.Go(func() { r.churn(churning) })

	for end := time.Now().Add(whole); !t.Failed() && time.Now().Before(end); {
		time.Sleep(min(cycle, time.Until(end)))
		t.Log(progress(r, talks, newcomers, seen.sample(talks, newcomers)))
		fail(t, talks, newcomers, r)
	}
	stop()
	loads.Wait()
	still()
	churn.Wait()
	fail(t, talks, newcomers, r)
	seen.sample(talks, newcomers)
	r.withdraw()
	seen.nothingMapped()
	w.nothingLeft()
	seen.nothingLeft()
}

// fail fails the test with the errors that its parts have recorded.
func fail(t *testing.T, talks []*talk, n *newcomers, r *room) {
	t.Helper()
	for _, talk := range talks {
		talk.wrongs.report(t)
	}
	n.wrongs.report(t)
	r.wrongs.report(t)
}

// wrongs are errors that have not been reported yet. They are safe for concurrent use.
type wrongs struct {
	mu  sync.Mutex
	all []error
}

func (w *wrongs) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, err)
}

func (w *wrongs) report(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range w.all {
		t.Error(err)
	}
	w.all = nil
}
