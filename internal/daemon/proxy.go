package daemon

import (
	"cmp"
	"context"
	"errors"
	"time"

	"fairlead/internal/daemon/sockets"
	"fairlead/internal/proxy"
)

// proxyRetry is the pause before the daemon tries again to open a port that another
// process took while no proxy ran.
const proxyRetry = 2 * time.Second

// keepProxy starts a new proxy whenever the proxy has ended, until ctx ends.
func (d *Daemon) keepProxy(ctx context.Context) {
	var again <-chan time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-d.cfg.ProxyEnded:
			err = d.healProxy(ctx)
		case <-again:
			again = nil
			err = sockets.Repeat(ctx, func() error {
				return d.once(func() error { _, err := d.repairAll(ctx); return err })
			})
		}
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.Error("reopen the proxy's ports", "error", err)
			again = time.After(proxyRetry)
		}
	}
}

// healProxy opens the ports of a proxy that has ended in another one. It returns an error if one of them is taken.
func (d *Daemon) healProxy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	healed := false
	var taken error
	err := sockets.Repeat(ctx, func() (err error) {
		healed, err = d.engine.HealProxy(ctx)
		var bind *proxy.BindError
		if errors.As(err, &bind) {
			taken = bind
		}
		return err
	})
	if healed {
		d.cfg.Log.Warn("the proxy died and was replaced: connections through it are lost")
	}
	return cmp.Or(err, taken)
}
