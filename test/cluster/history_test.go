package cluster_test

import (
	"strings"
	"testing"
	"time"

	"fairlead/test/etcd"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The transactions of all hosts for an address (claims, releases and renewals) must be linearizable: there
// is an order in which each has the effect of a compare-and-swap on one register, and in which those that
// did not overlap have the order of their times. The register has the revision of the record's last change.

// swap is a transaction that changes the record if its last change has a revision.
type swap struct{ on int64 }

// swapped is its outcome: the new revision, or the one that it found.
type swapped struct {
	known, committed bool
	revision         int64
}

// register is the record. If unsure, its revision is greater than the one here.
type register struct {
	revision int64
	unsure   bool
}

func (r register) can(revision int64) bool {
	return r.revision == revision && !r.unsure || r.revision < revision && r.unsure
}

// swaps is the model. At first the revision of the record is not known.
var swaps = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{register{0, true}} },
	Step: func(state, input, output any) (next []any) {
		r, in, out := state.(register), input.(swap), output.(swapped)
		switch {
		case !out.known:
			next = append(next, r)
			if r.can(in.on) {
				next = append(next, register{in.on, true})
			}
		case out.committed && r.can(in.on) && out.revision > in.on, !out.committed && r.can(out.revision):
			next = append(next, register{out.revision, false})
		}
		return next
	},
}).ToModel()

// eras are the times at which etcd was restored: each has a history of its own.
type eras []struct{ from, until time.Time }

// of returns the number of restores before a time. ok is false during a restore.
func (e eras) of(t time.Time) (n int, ok bool) {
	for n < len(e) && !t.Before(e[n].from) {
		if t.Before(e[n].until) {
			return 0, false
		}
		n++
	}
	return n, true
}

// historyOf returns the transactions for an address in an era.
func historyOf(all []etcd.Operation, address string, times eras, era int) (history []porcupine.Operation) {
	for _, op := range all {
		on, found := comparedRevision(op.Request, address)
		if n, ok := times.of(op.Call); !ok || n != era || !found || len(op.Request.Success) == 0 {
			continue
		}
		one := porcupine.Operation{ClientId: len(history), Input: swap{on}, Call: op.Call.UnixNano(),
			Return: op.Ended.UnixNano(), Output: swapped{}}
		if op.Response != nil {
			one.Output = swapped{true, op.Response.Succeeded, revisionAfter(op.Response, address)}
		}
		history = append(history, one)
	}
	return lasting(history)
}

// lasting gives each transaction without an answer the time until which it can have been committed: until
// another one has changed the record that it compares.
func lasting(history []porcupine.Operation) []porcupine.Operation {
	for i := range history {
		if history[i].Output.(swapped).known {
			continue
		}
		answered := history[i].Return
		history[i].Return = int64(1<<63 - 1)
		for _, o := range history {
			out, on := o.Output.(swapped), history[i].Input.(swap).on
			if out.committed && out.revision > on && o.Return > answered {
				history[i].Return = min(history[i].Return, o.Return)
			}
		}
	}
	return history
}

// comparedRevision returns the revision of the record that a transaction asks for.
func comparedRevision(r *etcdserverpb.TxnRequest, address string) (int64, bool) {
	for _, c := range r.Compare {
		if strings.HasSuffix(string(c.Key), "/addrs/"+address) && c.Target == etcdserverpb.Compare_MOD {
			return c.GetModRevision(), true
		}
	}
	return 0, false
}

// revisionAfter returns the revision of the record after a transaction.
func revisionAfter(r *etcdserverpb.TxnResponse, address string) int64 {
	if r.Succeeded {
		return r.Header.Revision
	}
	for _, part := range r.Responses {
		for _, pair := range part.GetResponseRange().GetKvs() {
			if strings.HasSuffix(string(pair.Key), "/addrs/"+address) {
				return pair.ModRevision
			}
		}
	}
	return 0
}

// linearizable fails the test if the transactions for the addresses are not.
func (f *faulty) linearizable() {
	const limit = 20 * time.Second
	all := f.recorder.Operations()
	for a := range f.logs {
		for era := range len(f.restored) + 1 {
			history := historyOf(all, a.String(), f.restored, era)
			if result := porcupine.CheckOperationsTimeout(swaps, history, limit); result != porcupine.Ok {
				f.lan.Errorf("the %d transactions for %s after %d restores are not linearizable: %s", len(history), a, era,
					result)
			}
			f.lan.Logf("%d transactions for %s after %d restores", len(history), a, era)
		}
	}
}

// TestHistories checks what is not linearizable.
func TestHistories(t *testing.T) {
	op := func(call, end, on int64, out swapped) porcupine.Operation {
		return porcupine.Operation{ClientId: int(call), Input: swap{on}, Call: call, Return: end, Output: out}
	}
	claimed := func(revision int64) swapped { return swapped{true, true, revision} }
	for name, c := range map[string]struct {
		history []porcupine.Operation
		want    porcupine.CheckResult
	}{
		"one after the other": {[]porcupine.Operation{op(1, 2, 5, claimed(7)), op(3, 4, 7, claimed(9))}, porcupine.Ok},
		"two claims of a record": {[]porcupine.Operation{op(1, 4, 5, claimed(7)), op(2, 3, 5, claimed(8))},
			porcupine.Illegal},
		"refused": {[]porcupine.Operation{op(1, 2, 5, claimed(7)), op(3, 4, 5, swapped{true, false, 7})},
			porcupine.Ok},
		"refused with an old one": {[]porcupine.Operation{op(1, 2, 5, claimed(7)),
			op(3, 4, 6, swapped{true, false, 5})}, porcupine.Illegal},
		"an answer was lost": {[]porcupine.Operation{op(1, 2, 5, claimed(7)), op(3, 4, 7, swapped{}),
			op(5, 6, 8, claimed(9))}, porcupine.Ok},
		"no answer was lost": {[]porcupine.Operation{op(1, 2, 5, claimed(7)), op(5, 6, 8, claimed(9))},
			porcupine.Illegal},
	} {
		if got := porcupine.CheckOperationsTimeout(swaps, lasting(c.history), time.Second); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
