package repair

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"fairlead/internal/daemon/networks"
	"fairlead/internal/daemon/state"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/handles"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/test/place"
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
	case <-time.After(place.Timeout):
		t.Fatal("it does not end")
	}
}

// automatic returns a watcher, a state with a network with outbound auto, and the choices for it.
func automatic(t *testing.T, life context.Context) (*watch.Watcher, *state.State, *networks.Networks) {
	t.Helper()
	cache := handles.New(kerneltest.Netns(t))
	t.Cleanup(cache.Close)
	w, err := watch.New(t.Context(), watch.Config{Net: rtnl.New(cache), NFT: noNFT{}})
	if err != nil {
		t.Fatal(err)
	}
	s := state.New(state.Config{Log: slog.New(slog.DiscardHandler), Life: life})
	s.Assume(model.Desired{Networks: []model.Network{{Name: "lan", Driver: model.DriverBridge,
		Outbound: model.OutboundAuto, Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.1.0.0/24")}}}}})
	return w, s, networks.New(s, nil, nil, time.Minute)
}

// TestStopWaitsForNoRules: a daemon that ends waits no longer for rules that change all the time, and leaves
// ebpf as it is.
func TestStopWaitsForNoRules(t *testing.T) {
	w, s, chosen := automatic(t, t.Context())
	chosen.AutoPaths(s.Desired())
	if err := chosen.Choose(networks.Finding{Names: []string{"lan"}, Why: []string{""}, At: time.Now()},
		func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var ended error
	New(Config{State: s, Watcher: w, Networks: chosen, EndFlows: func() (bool, error) { return false, nil },
		Deciders: func(ctx context.Context, paths []rules.Path) ([]rules.Reason, error) {
			stop()
			<-ctx.Done()
			ended = ctx.Err()
			return []rules.Reason{{Text: "nftables change faster than they can be read"}}, nil
		}}).FollowRules(ctx)
	if ended != context.Canceled {
		t.Errorf("it waits until %v", ended)
	}
	if c := chosen.Choices()["lan"]; c.Outbound() != model.OutboundEBPF {
		t.Errorf("the choice is %s", c.Outbound())
	}
}

// TestKeepOutbound: a daemon that starts reads the rules only if an earlier one has chosen ebpf, and notes no
// choice if it ends meanwhile.
func TestKeepOutbound(t *testing.T) {
	life, stop := context.WithCancel(t.Context())
	w, s, chosen := automatic(t, life)
	_, paths := chosen.AutoPaths(s.Desired())
	var earlier []plan.Outbound
	readings := 0
	h := New(Config{State: s, Watcher: w, Networks: chosen,
		Outbounds: func() ([]plan.Outbound, error) { return earlier, nil },
		Deciders: func(context.Context, []rules.Path) ([]rules.Reason, error) {
			readings++
			return make([]rules.Reason, 1), life.Err()
		}})
	h.KeepOutbound(s.Desired())
	if readings != 0 || len(chosen.Choices()) != 0 {
		t.Errorf("no earlier daemon: %d readings, %v", readings, chosen.Choices())
	}
	earlier = []plan.Outbound{{Router: paths[0].Router}}
	h.KeepOutbound(s.Desired())
	if c := chosen.Choices()["lan"]; readings != 1 || c.Outbound() != model.OutboundEBPF {
		t.Errorf("an earlier daemon: %d readings, %s", readings, c.Outbound())
	}
	stop()
	h.KeepOutbound(s.Desired())
	if c := chosen.Choices()["lan"]; c.Outbound() != model.OutboundEBPF {
		t.Errorf("a daemon that ends chooses %s", c.Outbound())
	}
}
