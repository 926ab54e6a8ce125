package certificates_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/cluster/certificates"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
	"fairlead/internal/model/gateway"
)

// TestOneHolder takes a lock that a working node has, for a long time, and when it is released. The one
// that was refused is called then, not earlier.
func TestOneHolder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one, two := w.nodes[0], w.nodes[1]
		held, interrupted := one.take(lockA)
		two.drain()
		two.refused(lockA, "host1")
		time.Sleep(10 * certificates.Lapse)
		two.refused(lockA, "host1")
		if held.Err() != nil || interrupted != 0 || len(two.calls) != 0 {
			t.Errorf("the lock is %v after %d holders, and the gateway was called %d times", context.Cause(held),
				interrupted, len(two.calls))
		}
		one.put(valueA, "one")
		two.drain()
		if err := one.Unlock(t.Context(), lockA); err != nil {
			t.Fatal(err)
		}
		<-two.calls
		_, interrupted = two.take(lockA)
		two.has(valueA, "one")
		if interrupted != 0 {
			t.Error("a released lock is shown as interrupted")
		}
		two.put(valueA, "two")
		w.nodes[2].has(valueA, "two")
	})
}

// TestKilled takes the lock of a node that does not renew it, deletes the challenges that it has left, and
// counts nodes that have ended. The node's own next process takes it at once.
func TestKilled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one, two, three := w.nodes[0], w.nodes[1], w.nodes[2]
		held, _ := one.take(lockA)
		if err := one.Present(t.Context(), lockA, gateway.Challenge{Token: "t", KeyAuthorization: "k"}); err != nil {
			t.Fatal(err)
		}
		one.Set(kvtest.Refused)
		two.refused(lockA, "host1")
		two.drain()
		start := time.Now()
		<-two.calls
		if waited := time.Since(start); waited > certificates.Lapse {
			t.Errorf("the lock may be taken after %s", waited)
		}
		if _, interrupted := two.take(lockA); interrupted != 1 {
			t.Errorf("%d nodes have ended", interrupted)
		}
		synctest.Wait()
		if left := three.Challenges(); len(left) != 0 {
			t.Errorf("the challenges %v are left", left)
		}
		one.refused(lockA, "host1") // it does not know yet
		<-held.Done()
		two.Set(kvtest.Refused)
		three.refused(lockA, "host2")
		three.drain()
		<-three.calls
		if _, interrupted := three.take(lockA); interrupted != 2 {
			t.Errorf("%d nodes have ended", interrupted)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		again := w.node(ctx, &running, "3")
		synctest.Wait()
		again.take(lockA)
		cancel()
		running.Wait()
	})
}

// TestLateHolder stops a node with a lock while it stores a value, and continues it when another node has
// stored one.
func TestLateHolder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one, two := w.nodes[0], w.nodes[1]
		one.take(lockA)
		gate := make(chan struct{})
		one.set(func() { one.gate = gate })
		late := make(chan error, 1)
		go func() { late <- one.Store(t.Context(), valueA, []byte("late")) }()
		two.refused(lockA, "host1")
		two.drain()
		<-two.calls
		two.take(lockA)
		two.put(valueA, "two")
		one.set(func() { one.gate = nil })
		close(gate)
		if err := <-late; err == nil {
			t.Error("the late holder stores a value")
		}
		if err := one.Delete(t.Context(), valueA); err == nil {
			t.Error("the late holder deletes a value")
		}
		if err := one.Unlock(t.Context(), lockA); err != nil {
			t.Error(err)
		}
		one.has(valueA, "two")
		w.nodes[2].refused(lockA, "host2")
	})
}

// TestStoreAway refuses and loses requests. A value that is stored meanwhile is there later, and a lock that
// could not be renewed for too long is lost.
func TestStoreAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one := w.nodes[0]
		for _, fault := range []kvtest.Fault{kvtest.Refused, kvtest.AnswerLost, kvtest.RequestLost} {
			held, _ := one.take(lockA)
			one.Set(fault)
			stored := make(chan error, 1)
			value := fmt.Sprint("value ", fault)
			go func() { stored <- one.Store(t.Context(), valueA, []byte(value)) }()
			time.Sleep(certificates.Lapse / 3)
			one.Set(kvtest.Works)
			if err := <-stored; err != nil || held.Err() != nil {
				t.Errorf("fault %d: %v, the lock: %v", fault, err, context.Cause(held))
			}
			w.nodes[1].has(valueA, value)
			one.Set(fault)
			<-held.Done()
			if _, _, err := one.Try(t.Context(), "le/certificates/b"); err == nil {
				t.Errorf("fault %d: a lock is taken", fault)
			}
			one.Set(kvtest.Works)
			if err := one.Unlock(t.Context(), lockA); err != nil {
				t.Errorf("fault %d: %v", fault, err)
			}
			for _, _, err := one.Try(t.Context(), "le/certificates/b"); err != nil; {
				<-one.calls
				_, _, err = one.Try(t.Context(), "le/certificates/b")
			}
			if err := one.Unlock(t.Context(), "le/certificates/b"); err != nil {
				t.Errorf("fault %d: %v", fault, err)
			}
		}
	})
}

// TestNotBegun loses the answers to transactions that take a lock, or the snapshot with it is late. No node has
// ended during an attempt.
func TestNotBegun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one, two := w.nodes[0], w.nodes[1]
		for range 3 {
			one.Set(kvtest.AnswerLost)
			if _, _, err := one.Try(t.Context(), lockA); err == nil {
				t.Fatal("a lock is taken without an answer")
			}
			one.Set(kvtest.Works)
			synctest.Wait()
		}
		if _, interrupted := one.take(lockA); interrupted != 0 {
			t.Errorf("%d nodes have ended", interrupted)
		}
		if err := one.Unlock(t.Context(), lockA); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		late := make(chan struct{})
		one.set(func() { one.late = late })
		if _, _, err := one.Try(t.Context(), lockA); err == nil || errors.As(err, new(gateway.Busy)) {
			t.Fatalf("take a lock without the newest records: %v", err)
		}
		synctest.Wait()
		if _, interrupted := two.take(lockA); interrupted != 0 {
			t.Errorf("%d nodes have ended", interrupted)
		}
		close(late)
	})
}

// TestCallerGone ends the context of a change while the store does not answer, and the lock is another context's.
func TestCallerGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one := w.nodes[0]
		if err := one.Lock(t.Context(), "le/account"); err != nil {
			t.Fatal(err)
		}
		for _, fault := range []kvtest.Fault{kvtest.Refused, kvtest.RequestLost} {
			one.Set(fault)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			if err := one.Store(ctx, "le/account", []byte("a")); err == nil {
				t.Errorf("fault %d: the value is stored", fault)
			}
			cancel()
			ch := gateway.Challenge{Token: "t", KeyAuthorization: "k"}
			if err := one.Present(ctx, "le/account", ch); err == nil {
				t.Errorf("fault %d: the challenge is presented", fault)
			}
			if err := one.Delete(ctx, "le/account"); err == nil {
				t.Errorf("fault %d: the value is deleted", fault)
			}
			if waited := time.Since(start); waited != time.Second {
				t.Errorf("fault %d: the changes end after %s", fault, waited)
			}
		}
		one.Set(kvtest.Works)
		if err := one.Unlock(t.Context(), "le/account"); err != nil {
			t.Error(err)
		}
	})
}

// TestManyHolders lets goroutines on all nodes increment a value under its lock.
func TestManyHolders(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const rounds = 20
		var all sync.WaitGroup
		for _, n := range w.nodes {
			all.Go(func() {
				for range rounds {
					if err := n.Lock(t.Context(), "le/account"); err != nil {
						t.Error(err)
						return
					}
					count := 0
					if text, err := n.Load(t.Context(), "le/account"); err == nil {
						count = len(text)
					}
					n.put("le/account", strings.Repeat("x", count+1))
					if err := n.Unlock(t.Context(), "le/account"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		w.nodes[0].has("le/account", strings.Repeat("x", rounds*len(w.nodes)))
	})
}

// TestSealed reads the store as its other users do, and writes records as they can.
func TestSealed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one, two := w.nodes[0], w.nodes[1]
		one.take(lockA)
		one.take("le/certificates/b")
		one.put(valueA, "private key")
		one.put("le/certificates/b", "b")
		for e := range w.store.Snapshot().Under("") {
			if bytes.Contains(e.Value, []byte("private key")) || bytes.Contains(e.Value, []byte("cHJpdmF0ZSBrZXk")) {
				t.Errorf("record %s is readable: %s", e.Key, e.Value)
			}
		}
		synctest.Wait()
		sealed, _ := w.store.Snapshot().Get(record.Certificates + valueA)
		other, err := trust.NewBox(trust.NewClusterKey(), "c", certificates.Purpose)
		if err != nil {
			t.Fatal(err)
		}
		forged := record.Sealed{Sealed: other.Seal(record.Certificates+"le/certificates/d", []byte("forged"))}
		challenge, err := json.Marshal(gateway.Challenge{Token: "t", KeyAuthorization: "of an attacker"})
		if err != nil {
			t.Fatal(err)
		}
		at := record.Key(record.Challenges, lockA, "x")
		if _, err := two.Client.Commit(t.Context(), kv.Txn{Then: []kv.Change{
			{Key: record.Certificates + "le/certificates/c", Value: sealed.Value}, // moved
			{Key: record.Certificates + "le/certificates/d", Value: record.Encode(forged)},
			{Key: record.Certificates + "le/certificates/e", Value: []byte("not JSON")},
			{Key: record.Certificates + "le/certificates/f", Value: record.Encode(record.Sealed{Sealed: []byte("x")})},
			{Key: at, Value: record.Encode(record.Sealed{Sealed: other.Seal(at, challenge)})},
		}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, n := range w.nodes {
			n.has(valueA, "private key")
			n.has("le/certificates/b", "b")
			for _, id := range []string{"c", "d", "e", "f"} {
				text, err := n.Load(t.Context(), "le/certificates/"+id)
				if err == nil || errors.Is(err, fs.ErrNotExist) {
					t.Errorf("record %s is read: %q, %v", id, text, err)
				}
			}
			if all := n.Challenges(); len(all) != 0 {
				t.Errorf("the gateway answers %v", all)
			}
			n.set(func() {
				if len(n.problems) != 5 {
					t.Errorf("the problems are %q", n.problems)
				}
			})
		}
		if err := one.Store(t.Context(), valueA, make([]byte, certificates.MaxValue+1)); err == nil ||
			!strings.Contains(err.Error(), "at most") {
			t.Errorf("a value that is too large: %v", err)
		}
		if keys, err := two.List(t.Context(), "le/certificates", false); err != nil || len(keys) != 6 ||
			!slices.Contains(keys, valueA) {
			t.Errorf("the keys are %q, %v", keys, err)
		}
	})
}

// TestChallenge publishes a challenge. It waits for the gateways of nodes that are alive, not for dead ones,
// and not for ever for one that does not answer.
func TestChallenge(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one, two, three := w.nodes[0], w.nodes[1], w.nodes[2]
		one.take(lockA)
		for _, n := range w.nodes {
			n.drain()
		}
		ch := gateway.Challenge{Name: "a.test", Certificate: gateway.Certificate{CertFile: "c", KeyFile: "k"}}
		slow := make(chan struct{})
		two.set(func() { two.slow = slow })
		presented := make(chan error, 1)
		go func() { presented <- one.Present(t.Context(), lockA, ch) }()
		synctest.Wait()
		if len(presented) > 0 {
			t.Error("the challenge is presented before all gateways use it")
		}
		if got := two.Challenges(); len(got) != 1 || got[0].Name != "a.test" || got[0].Certificate.KeyFile != "k" {
			t.Errorf("node 2 knows %v", got)
		}
		two.set(func() { two.slow = nil })
		close(slow)
		if err := <-presented; err != nil {
			t.Error(err)
		}
		if err := one.CleanUp(t.Context(), lockA, ch); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := three.Challenges(); len(got) != 0 {
			t.Errorf("node 3 knows %v", got)
		}
		two.set(func() { two.away = true })
		start := time.Now()
		if err := one.Present(t.Context(), lockA, ch); err != nil || time.Since(start) < time.Second {
			t.Errorf("with a node that does not answer: %v after %s", err, time.Since(start))
		}
		two.EndLease()
		synctest.Wait()
		start = time.Now()
		if err := one.Present(t.Context(), lockA, ch); err != nil || time.Since(start) > time.Second {
			t.Errorf("with a dead node: %v after %s", err, time.Since(start))
		}
		if err := three.Present(t.Context(), lockA, ch); err == nil {
			t.Error("a node without the lock publishes a challenge")
		}
	})
}

// TestRecallWaits starts a gateway while what an earlier process has left cannot be read yet. Updates go on, and
// their snapshot stays.
func TestRecallWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box, err := trust.NewBox(trust.NewClusterKey(), "c", certificates.Purpose)
		if err != nil {
			t.Fatal(err)
		}
		reading := make(chan struct{})
		c := certificates.New(certificates.Config{Log: slog.New(slog.DiscardHandler),
			Box: func() (*trust.Box, error) { return box, nil },
			Recall: func() (certificates.Recalled, error) {
				<-reading
				return certificates.Recalled{Box: box, Snapshot: kv.NewTable(1, nil)}, nil
			}})
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Follow(func(context.Context, []string) error { return nil })
		}()
		synctest.Wait()
		entry := kv.Entry{Key: record.Certificates + valueA, Revision: 2,
			Value: record.Encode(record.Sealed{Sealed: box.Seal(record.Certificates+valueA, []byte("a"))})}
		c.Update(t.Context(), member.Self{Node: "1"}, kv.Update{Snapshot: kv.NewTable(2, []kv.Entry{entry}),
			Changed: []string{entry.Key}})
		close(reading)
		<-done
		if got, err := c.Load(t.Context(), valueA); err != nil || string(got) != "a" {
			t.Errorf("the gateway reads %q, %v", got, err)
		}
	})
}

// TestLeave removes a node from the cluster. Its gateway has no value of the cluster any more.
func TestLeave(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		one := w.nodes[0]
		held, _ := one.take(lockA)
		one.put(valueA, "a")
		one.drain()
		if err := one.Leave(); err != nil {
			t.Fatal(err)
		}
		if keys := <-one.calls; len(keys) != 1 || keys[0] != valueA || held.Err() == nil {
			t.Errorf("changed %q, the lock: %v", keys, held.Err())
		}
		one.has(valueA, "")
		if _, _, err := one.Try(t.Context(), lockA); err == nil || !strings.Contains(err.Error(), "cluster join") {
			t.Errorf("take a lock without a cluster: %v", err)
		}
	})
}
