package hold

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/virtual"
)

// TestWatchAgain lets the watch of the links fail several times. The host has no address meanwhile, and can
// have one when the links are known again.
func TestWatchAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.timer.close()
		ctx, end := context.WithCancel(t.Context())
		fail := make(chan bool)
		watches := 0
		links := func(ctx context.Context, changed func()) error {
			watches++
			for {
				select {
				case failed := <-fail:
					if failed {
						return errors.New("no netlink")
					}
					changed()
				case <-ctx.Done():
					return nil
				}
			}
		}
		ended := make(chan struct{})
		go func() { defer close(ended); r.watch(ctx, links) }()
		a := &address{addr: netip.MustParseAddr("192.0.2.10"), entry: kv.Entry{Value: []byte("{}")}}
		unable := func() string {
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.unableFor(a)
		}
		for range 3 {
			fail <- true
			if got := unable(); got != "no netlink" {
				t.Errorf("after an error of the watch, the host cannot have an address because of %q", got)
			}
			<-r.ready // Update does not wait for links that cannot be known
		}
		fail <- false
		if got := unable(); got != "the fence is not loaded" {
			t.Errorf("when the links are known again, the host cannot have an address because of %q", got)
		}
		before := time.Now()
		fail <- true
		fail <- false
		if waited := time.Since(before); waited != watchAgain {
			t.Errorf("after a watch that worked, the next one begins after %v, want %v", waited, watchAgain)
		}
		end()
		<-ended
		if watches != 5 {
			t.Errorf("the links were watched %d times, want 5", watches)
		}
	})
}

// TestUpdateWhileReleased adds an address to the cluster while the node has given up all addresses, as it does while
// it tries to leave.
func TestUpdateWhileReleased(t *testing.T) {
	r, err := New(Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.timer.close()
	close(r.ready)
	r.life, r.restart = t.Context(), math.MaxInt64 // without a fence
	store := kvtest.New()
	put := func(addr string) {
		t.Helper()
		key := record.Key(record.Addresses, addr)
		value := record.Address{Prefix: netip.PrefixFrom(netip.MustParseAddr(addr), 24), Hold: time.Second}
		txn := kv.Txn{Then: []kv.Change{{Key: key, Value: record.Encode(value)}}}
		if _, err := store.Client().Commit(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
		r.Update(t.Context(), member.Self{Node: "one"}, kv.Update{Snapshot: store.Snapshot(), Changed: []string{key}})
	}
	put("192.0.2.10")
	r.Release(t.Context())
	put("192.0.2.11")
	put("192.0.2.12")
	if got := len(r.States()); got != 1 {
		t.Errorf("a node that has given up its addresses has %d, want the one from before", got)
	}
	r.Resume()
	if got := r.States(); len(got) != 3 || got[1].Address != netip.MustParseAddr("192.0.2.11") {
		t.Errorf("the addresses after Resume: %+v, want 3", got)
	}
}

// TestFenceLoadedLater loads the fence at the second attempt, with a snapshot in which nothing has changed for the
// address. Then the host can have it.
func TestFenceLoadedLater(t *testing.T) {
	ns := kerneltest.Netns(t)
	kerneltest.Run(t, ns, "ip", "link", "add", "lan0", "up", "type", "veth", "peer", "name", "lan1")
	kerneltest.Run(t, ns, "ip", "link", "set", "lan1", "up")
	kerneltest.Run(t, ns, "ip", "address", "add", "192.0.2.1/24", "dev", "lan0")
	host, err := virtual.New(ns, "")
	if err != nil {
		t.Fatal(err)
	}
	defer host.End()
	store := kvtest.New()
	r, err := New(Config{Host: host, Store: store.Client(), Note: func(api.Event) {},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r.restart = math.MaxInt64 // as if it could not be loaded now
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	defer func() { end(); <-ended }()
	<-r.ready
	key := record.Key(record.Addresses, "192.0.2.10")
	value := record.Address{Prefix: netip.MustParsePrefix("192.0.2.10/24"), Hold: time.Second}
	txn := kv.Txn{Then: []kv.Change{{Key: key, Value: record.Encode(value)}}}
	if _, err := store.Client().Commit(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
	update := func(changed ...string) []string {
		return r.Update(ctx, member.Self{Node: "one"}, kv.Update{Snapshot: store.Snapshot(), Changed: changed})
	}
	if got := update(key); len(got) != 1 {
		t.Errorf("without the fence, the problems are %q, want one", got)
	}
	r.mu.Lock()
	r.restart = 0
	r.mu.Unlock()
	if got := update("other"); len(got) > 0 {
		t.Errorf("with the fence, the problems are %q, want none", got)
	}
	if err := r.Leave(); err != nil {
		t.Error(err)
	}
}
