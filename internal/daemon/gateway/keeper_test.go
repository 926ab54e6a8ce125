package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"fairlead/internal/api"
	"fairlead/internal/daemon/gateway"
	"fairlead/internal/model"
	values "fairlead/internal/model/gateway"
)

// runner gives each configuration to the test, which answers with an error.
type runner struct {
	began   chan string
	answers chan error
}

func (r runner) Check(model.Gateway) (api.Mistakes, []string) { return nil, nil }

func (r runner) Run(ctx context.Context, g *model.Gateway) error {
	r.began <- nameOf(g)
	select {
	case err := <-r.answers:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// named returns a configuration with a name.
func named(name string) *model.Gateway {
	return &model.Gateway{Static: values.Static{Default: []string{name}}}
}

func nameOf(g *model.Gateway) string {
	if g == nil {
		return "none"
	}
	return g.Static.Default[0]
}

// keep runs a Keeper until the test ends.
func keep(t *testing.T) (*gateway.Keeper, runner) {
	r := runner{make(chan string), make(chan error)}
	k := gateway.New(r, slog.New(slog.DiscardHandler), func() {})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.Keep(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return k, r
}

// TestNewestIsGiven: while the gateway is silent, Want returns at once, and the gateway gets only the newest
// configuration afterwards. Equal configurations are given once.
func TestNewestIsGiven(t *testing.T) {
	k, r := keep(t)
	k.Want(nil)
	got := []string{<-r.began} // what an earlier daemon has left is ended
	for _, name := range []string{"one", "two", "three", "three"} {
		k.Want(named(name))
	}
	number := k.Want(named("three"))
	r.answers <- nil
	got = append(got, <-r.began)
	r.answers <- nil
	if err := k.Await(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	if again := k.Want(named("three")); again != number {
		t.Errorf("an equal configuration has number %d, want %d", again, number)
	}
	if !slices.Equal(got, []string{"none", "three"}) {
		t.Errorf("the gateway got %q", got)
	}
}

// TestFailures: Await returns the error of an attempt, and what failed is repeated until it succeeds.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, r := keep(t)
		number := k.Want(named("one"))
		<-r.began
		taken := errors.New("port taken")
		r.answers <- taken
		if err := k.Await(t.Context(), number); !errors.Is(err, taken) {
			t.Errorf("%v, want %v", err, taken)
		}
		<-r.began
		r.answers <- nil
		synctest.Wait()
		if err := k.Await(t.Context(), number); err != nil {
			t.Errorf("after a repetition that succeeded: %v", err)
		}
	})
}

// TestAwaitEndsWithItsRequest: a request that ends does not wait for a silent gateway.
func TestAwaitEndsWithItsRequest(t *testing.T) {
	k, r := keep(t)
	number := k.Want(named("one"))
	<-r.began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.Await(ctx, number); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
