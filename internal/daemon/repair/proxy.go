package repair

import (
	"cmp"
	"context"
	"errors"
	"time"

	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/step"
	"fairlead/internal/proxy"
)

// proxyRetry is the pause before the daemon tries again to open a port that another
// process took while no proxy ran, and before it starts another proxy if the next one
// has ended, too.
const proxyRetry = 2 * time.Second

// KeepProxy starts a new proxy whenever the proxy has ended, which a value of the channel says, until ctx ends. It locks
// the mutex of the state, but not while it waits for the proxy.
func (h *Healer) KeepProxy(ctx context.Context, ended <-chan struct{}) {
	var again <-chan time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-ended:
			if again != nil {
				continue // the next attempt starts a new one
			}
			err = h.healProxy(ctx)
		case <-again:
			again = nil
			if err = h.healProxy(ctx); err == nil {
				err = h.steps.Repeat(ctx, func() error { _, err := h.repairAll(ctx); return err })
			}
		}
		if err != nil && ctx.Err() == nil {
			h.state.Log.Error("reopen the proxy's ports", "error", err)
			again = time.After(proxyRetry)
		}
	}
}

// healProxy opens the ports of a proxy that has ended in another one. It returns an error if one of them is taken.
func (h *Healer) healProxy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, step.Limit)
	defer cancel()
	healed := false
	var taken error
	err := sockets.Repeat(ctx, func() (err error) {
		healed, err = h.cfg.Engine.HealProxy(ctx)
		if bind, ok := errors.AsType[*proxy.BindError](err); ok {
			taken = bind
		}
		return err
	})
	if healed {
		h.state.Log.Warn("the proxy died and was replaced: connections through it are lost")
	}
	return cmp.Or(err, taken)
}
