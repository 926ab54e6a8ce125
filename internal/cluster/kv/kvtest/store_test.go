package kvtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
)

// TestConform checks that the store in memory behaves like the real one.
func TestConform(t *testing.T) {
	kvtest.Conform(t, func(t *testing.T) (one, two kvtest.Node) {
		store := kvtest.New()
		node := func() kvtest.Node {
			c := store.Client()
			return kvtest.Node{Committer: c, Updates: c.Updates(t.Context())}
		}
		return node(), node()
	})
}

// TestFaults checks what each fault does to a transaction, and that updates follow when it ends.
func TestFaults(t *testing.T) {
	for fault, want := range map[kvtest.Fault]struct {
		err       error
		committed bool
	}{
		kvtest.Works: {nil, true}, kvtest.Refused: {kv.ErrUnavailable, false},
		kvtest.RequestLost: {kv.ErrUnknown, false}, kvtest.AnswerLost: {kv.ErrUnknown, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := kvtest.New()
			client := store.Client()
			updates := client.Updates(t.Context())
			<-updates
			client.Set(fault)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := client.Commit(ctx, kv.Txn{Then: []kv.Change{{Key: "a", Value: []byte("1")}}})
			if !errors.Is(err, want.err) {
				t.Errorf("fault %v: %v, want %v", fault, err, want.err)
			}
			if _, got := store.Snapshot().Get("a"); got != want.committed {
				t.Errorf("fault %v: committed %v, want %v", fault, got, want.committed)
			}
			synctest.Wait()
			select {
			case u := <-updates:
				if fault != kvtest.Works {
					t.Errorf("fault %v: an update with %v", fault, u.Changed)
				}
			default:
				if fault == kvtest.Works {
					t.Error("no update")
				}
			}
			client.Set(kvtest.Works)
			if want.committed && fault != kvtest.Works {
				if u := <-updates; len(u.Changed) != 1 {
					t.Errorf("fault %v: the update has %v", fault, u.Changed)
				}
			}
		})
	}
}

// TestEndLease checks that only the leased keys of the client are deleted.
func TestEndLease(t *testing.T) {
	store := kvtest.New()
	one, two := store.Client(), store.Client()
	for client, key := range map[*kvtest.Client]string{one: "one", two: "two"} {
		if _, err := client.Commit(t.Context(), kv.Txn{Then: []kv.Change{{Key: key, Value: []byte("1")},
			{Key: "alive/" + key, Value: []byte("1"), Leased: true}}}); err != nil {
			t.Fatal(err)
		}
	}
	one.EndLease()
	var keys []string
	for e := range store.Snapshot().Under("") {
		keys = append(keys, e.Key)
	}
	if len(keys) != 3 || keys[0] != "alive/two" {
		t.Errorf("the store has %v, want all but alive/one", keys)
	}
}
