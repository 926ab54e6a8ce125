package daemon

import (
	"context"
	"time"
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
			_, err = d.engine.Heal(ctx)
		}
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.Error("reopen the proxy's ports", "error", err)
			again = time.After(proxyRetry)
		}
	}
}

func (d *Daemon) healProxy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	healed, err := d.engine.HealProxy(ctx)
	if healed {
		d.cfg.Log.Warn("the proxy died and was replaced: connections through it are lost")
	}
	return err
}
