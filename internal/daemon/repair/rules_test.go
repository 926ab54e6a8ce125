package repair

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"fairlead/internal/daemon/state"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"
)

// noNFT is a host without nftables.
type noNFT struct{}

func (noNFT) Available() error { return errors.New("no nftables") }
func (noNFT) Port() uint32     { return 0 }

// TestFollowRules ends connections at the start, which counts as no change, then after a
// change, and then fails: all objects of the table are read again.
func TestFollowRules(t *testing.T) {
	cache := handles.New(kerneltest.Netns(t))
	t.Cleanup(cache.Close)
	w, err := watch.New(t.Context(), watch.Config{Net: rtnl.New(cache), NFT: noNFT{},
		Concerns: func(m *watch.Matcher, _ plan.Object) bool { return m.TableChanged(plan.FlowtableName) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls, results := make(chan struct{}), make(chan error)
	h := New(Config{State: state.New(state.Config{Log: slog.New(slog.DiscardHandler)}), Watcher: w,
		EndFlows: func() (bool, error) { calls <- struct{}{}; return true, <-results }})
	done := make(chan struct{})
	go func() { h.FollowRules(ctx); close(done) }()
	pass := func(err error, ended int64) {
		t.Helper()
		<-calls
		if got := h.ended.Load(); got != ended {
			t.Errorf("%d changes counted before this pass, want %d", got, ended)
		}
		w.NoteRules()
		results <- err
	}
	changed := func() bool {
		none := func(string) int { return -1 }
		return len(w.Take().Concerned(plan.Plan{plan.Flowtable{}}, none)) == 1
	}
	pass(nil, 0)
	pass(nil, 0)
	if changed() {
		t.Error("the table is noted as changed")
	}
	pass(errors.New("no such device"), 1)
	<-calls
	if !changed() {
		t.Error("the table is not noted as changed although it was deleted")
	}
	cancel()
	results <- nil
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("it does not end")
	}
}
