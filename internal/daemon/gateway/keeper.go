// Package gateway makes the HTTP gateway serve what the daemon wants, in a goroutine of its own: the daemon never
// waits for the gateway while it holds its mutex. The package does not decide what the gateway serves.
//
// Theory of operation. Want records the newest configuration and returns at once. The goroutine of Keep gives it to
// the gateway; what was replaced meanwhile is never given. A request that needs the result calls Await without the
// daemon's mutex. What fails is a problem of the gateway alone, and is tried again.
//
//	daemon ──► Want ──► newest ──► Keep ──► Runner.Run
//	request ◄── Await ◄── result ◄──┘
package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"fairlead/internal/alarm"
	"fairlead/internal/api"
	"fairlead/internal/lock"
	"fairlead/internal/model"
)

// Runner runs the HTTP gateway.
type Runner interface {
	// Check returns the mistakes in a gateway that files declare, and notes for their author. It reads the files
	// of certificates and users that the gateway names.
	Check(model.Gateway) (api.Mistakes, []string)
	// Run makes the gateway serve these values, whose servers have URLs; nil ends it. When
	// it returns, new requests meet the values. After an error, the gateway may have an
	// earlier configuration. A gateway that ends is started again without the daemon.
	Run(context.Context, *model.Gateway) error
}

const (
	// runLimit is the timeout of one Run.
	runLimit = 2 * time.Minute
	// retry is the pause before a failed Run is repeated, e.g. because another process had the port.
	retry = 2 * time.Second
)

// Keeper keeps the gateway as it is wanted. Its methods may be called concurrently.
type Keeper struct {
	runner  Runner
	log     *slog.Logger
	changed func()
	// woken receives a value when there is a newer configuration.
	woken alarm.Signal

	// mu protects the fields below. It is never held while the gateway runs something.
	mu     sync.Mutex
	wanted *model.Gateway
	// asked counts the configurations that were wanted, and done is the number of the last one that was given to
	// the gateway, with the result.
	asked, done uint64
	result      error
	// advanced is closed and replaced when done changes.
	advanced chan struct{}
}

// New returns a Keeper of a gateway that nothing was wanted of yet. changed is called when the gateway may have
// changed.
func New(runner Runner, log *slog.Logger, changed func()) *Keeper {
	return &Keeper{runner: runner, log: log, changed: changed, woken: alarm.NewSignal(),
		advanced: make(chan struct{})}
}

// Want makes Keep give the gateway a configuration, nil to end it, and returns its number for Await. It does not
// wait. A configuration that equals the newest one has the same number. The caller must not change g afterwards.
func (k *Keeper) Want(g *model.Gateway) (number uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked > 0 && g.Equal(k.wanted) {
		return k.asked
	}
	k.wanted, k.asked = g, k.asked+1
	k.woken.Send()
	return k.asked
}

// Await waits until the gateway has the configuration with this number, or a newer one, and returns the error of
// that attempt. Returns the error of ctx if that ends first.
func (k *Keeper) Await(ctx context.Context, number uint64) error {
	lock.Outside("the gateway")
	for {
		k.mu.Lock()
		done, result, advanced := k.done, k.result, k.advanced
		k.mu.Unlock()
		if done >= number {
			return result
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return fmt.Errorf("wait for the gateway: %w", ctx.Err())
		}
	}
}

// Keep gives the gateway what is wanted until ctx ends. It repeats what has failed.
func (k *Keeper) Keep(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.woken:
		case <-again:
		}
		if again = nil; k.give(ctx) != nil {
			again = time.After(retry)
		}
	}
}

// give gives the gateway the newest configuration.
func (k *Keeper) give(ctx context.Context) error {
	k.mu.Lock()
	g, number, before := k.wanted, k.asked, k.result
	k.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	err := k.runner.Run(limited, g)
	if err != nil {
		err = fmt.Errorf("run the gateway: %w", err)
		if ctx.Err() == nil && (before == nil || before.Error() != err.Error()) {
			k.log.Error("apply", "object", "gateway", "error", err)
		}
	}
	defer k.changed()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.done, k.result = number, err
	close(k.advanced)
	k.advanced = make(chan struct{})
	return err
}

// End ends the gateway. Keep must have returned.
func (k *Keeper) End(ctx context.Context) error {
	lock.Outside("the gateway")
	k.Want(nil)
	return k.give(ctx)
}
