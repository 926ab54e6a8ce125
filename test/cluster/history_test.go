package cluster_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/test/etcd"
	"fairlead/test/place"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The transactions of all hosts for a record must be linearizable: there is an order in which each has the effect
// of a compare-and-swap on one register, and in which those that did not overlap have the order of their times.
// The register has the revision of the record's last change, and 0 if the record does not exist.

// swap is a transaction that changes or deletes the record if its last change has a revision.
type swap struct {
	on      int64
	deletes bool
}

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
	Init: func() []any { return []any{register{-1, true}} },
	Step: func(state, input, output any) (next []any) {
		r, in, out := state.(register), input.(swap), output.(swapped)
		switch {
		case !out.known:
			next = append(next, r)
			switch {
			case r.can(in.on) && in.deletes:
				next = append(next, register{0, false})
			case r.can(in.on):
				next = append(next, register{in.on, true})
			}
		case out.committed && r.can(in.on) && (in.deletes || out.revision > in.on),
			!out.committed && r.can(out.revision):
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

// historyOf returns the transactions for a record in an era.
func historyOf(all []etcd.Operation, key string, times eras, era int) (history []porcupine.Operation) {
	for _, op := range all {
		on, found := comparedRevision(op.Request, key)
		writes, deletes := changes(op.Request, key)
		if n, ok := times.of(op.Call); !ok || n != era || !found || !writes {
			continue
		}
		one := porcupine.Operation{ClientId: len(history), Input: swap{on, deletes}, Call: op.Call.UnixNano(),
			Return: op.Ended.UnixNano(), Output: swapped{}}
		if op.Response != nil {
			one.Output = swapped{true, op.Response.Succeeded, revisionAfter(op.Response, key, deletes)}
		}
		history = append(history, one)
	}
	return lasting(history)
}

// changes reports whether a transaction changes a record, and whether it deletes it.
func changes(r *etcdserverpb.TxnRequest, key string) (writes, deletes bool) {
	for _, op := range r.Success {
		writes = writes || string(op.GetRequestPut().GetKey()) == key
		deletes = deletes || string(op.GetRequestDeleteRange().GetKey()) == key
	}
	return writes || deletes, deletes
}

// lasting gives each transaction without an answer the time until which it can have been committed: until
// another one has changed the record that it compares. etcd does not delay one for so long that the record is
// deleted again meanwhile.
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
func comparedRevision(r *etcdserverpb.TxnRequest, key string) (int64, bool) {
	for _, c := range r.Compare {
		if string(c.Key) == key && c.Target == etcdserverpb.Compare_MOD {
			return c.GetModRevision(), true
		}
	}
	return 0, false
}

// revisionAfter returns the revision of the record after a transaction.
func revisionAfter(r *etcdserverpb.TxnResponse, key string, deletes bool) int64 {
	switch {
	case r.Succeeded && deletes:
		return 0
	case r.Succeeded:
		return r.Header.Revision
	}
	for _, part := range r.Responses {
		for _, pair := range part.GetResponseRange().GetKvs() {
			if string(pair.Key) == key {
				return pair.ModRevision
			}
		}
	}
	return 0
}

// linearizable fails the test if the transactions for a record are not, or if there is none below a prefix.
func (f *faulty) linearizable(prefixes ...string) {
	const limit = 20 * time.Second
	all := f.recorder.Operations()
	for _, prefix := range prefixes {
		keys, transactions := keysUnder(all, root+prefix), 0
		for _, key := range keys {
			for era := range len(f.restored) + 1 {
				history := historyOf(all, key, f.restored, era)
				transactions += len(history)
				if result := porcupine.CheckOperationsTimeout(swaps, history, limit); result != porcupine.Ok {
					f.lan.Errorf("the %d transactions for %s after %d restores are not linearizable: %s", len(history), key,
						era, result)
				}
			}
		}
		f.lan.Logf("%d transactions for %d records of %s", transactions, len(keys), prefix)
		if transactions == 0 {
			f.lan.Errorf("there was no transaction for %s", prefix)
		}
	}
}

// keysUnder returns the keys below a prefix that transactions change.
func keysUnder(all []etcd.Operation, prefix string) []string {
	found := map[string]bool{}
	for _, op := range all {
		for _, c := range op.Request.Compare {
			key := string(c.Key)
			if writes, _ := changes(op.Request, key); writes && strings.HasPrefix(key, prefix) {
				found[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestHistories checks what is not linearizable.
func TestHistories(t *testing.T) {
	op := func(call, end, on int64, out swapped) porcupine.Operation {
		return porcupine.Operation{ClientId: int(call), Input: swap{on: on}, Call: call, Return: end, Output: out}
	}
	deleted := func(call, end, on int64, out swapped) porcupine.Operation {
		d := op(call, end, on, out)
		d.Input = swap{on: on, deletes: true}
		return d
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
		"deleted": {[]porcupine.Operation{op(1, 2, 5, claimed(7)), deleted(3, 4, 7, swapped{true, true, 0}),
			op(5, 6, 0, claimed(9))}, porcupine.Ok},
		"a deleted record is changed": {[]porcupine.Operation{deleted(3, 4, 7, swapped{true, true, 0}),
			op(5, 6, 7, claimed(9))}, porcupine.Illegal},
		"a deletion without an answer": {[]porcupine.Operation{op(1, 2, 5, claimed(7)), deleted(3, 4, 7, swapped{}),
			op(5, 6, 0, claimed(9))}, porcupine.Ok},
		"two claims of no record": {[]porcupine.Operation{op(1, 4, 0, claimed(7)), op(2, 3, 0, claimed(8))},
			porcupine.Illegal},
		"no answer was lost": {[]porcupine.Operation{op(1, 2, 5, claimed(7)), op(5, 6, 8, claimed(9))},
			porcupine.Illegal},
	} {
		if got := porcupine.CheckOperationsTimeout(swaps, lasting(c.history), place.Timeout); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
