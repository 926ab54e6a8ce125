package kv_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"fairlead/internal/cluster/kv"
)

// answers is a store that answers transactions in turn, and repeats the last answer.
type answers struct {
	t    *testing.T
	errs []error
	asks int
}

// Commit implements kv.Committer.
func (a *answers) Commit(ctx context.Context, _ kv.Txn) (kv.Result, error) {
	if _, limited := ctx.Deadline(); !limited {
		a.t.Error("an attempt has no time limit")
	}
	err := a.errs[min(a.asks, len(a.errs)-1)]
	a.asks++
	return kv.Result{Committed: err == nil}, err
}

// TestRepeat commits transactions whose answers are lost. Once an answer was lost, no later error says
// that the transaction was not committed.
func TestRepeat(t *testing.T) {
	refused := errors.New("permission denied")
	for name, test := range map[string]struct {
		errs []error
		want error
		lost bool
		asks int
	}{
		"answered":                   {[]error{nil}, nil, false, 1},
		"not sent":                   {[]error{kv.ErrUnavailable}, kv.ErrUnavailable, false, 1},
		"refused":                    {[]error{refused}, refused, false, 1},
		"answered at the repetition": {[]error{kv.ErrUnknown, nil}, nil, true, 2},
		"answered after a pause":     {[]error{kv.ErrUnknown, kv.ErrUnavailable, nil}, nil, true, 3},
		"lost, then not sent":        {[]error{kv.ErrUnknown, kv.ErrUnavailable}, kv.ErrUnknown, true, 3},
		"lost, then frozen":          {[]error{kv.ErrUnknown, kv.ErrFrozen}, kv.ErrUnknown, true, 3},
		"lost, then another etcd":    {[]error{kv.ErrUnknown, kv.ErrOtherEtcd}, kv.ErrUnknown, true, 3},
		"never answered":             {[]error{kv.ErrUnknown}, kv.ErrUnknown, true, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &answers{t: t, errs: test.errs}
			result, lost, err := kv.Repeat(t.Context(), store, kv.Txn{})
			if !errors.Is(err, test.want) || result.Committed != (test.want == nil) || lost != test.lost ||
				store.asks != test.asks {
				t.Errorf("%s: %+v, lost %v, %v after %d attempts", name, result, lost, err, store.asks)
			}
			if test.want == kv.ErrUnknown && (errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrFrozen)) {
				t.Errorf("%s: the error %v also says that nothing was committed", name, err)
			}
		})
	}
}

// TestRepeatEnds ends the context while a transaction is repeated.
func TestRepeatEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	store := &answers{t: t, errs: []error{kv.ErrUnknown}}
	if _, _, err := kv.Repeat(ctx, store, kv.Txn{}); !errors.Is(err, kv.ErrUnknown) || store.asks != 1 {
		t.Errorf("%v after %d attempts", err, store.asks)
	}
}
