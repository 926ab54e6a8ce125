package daemon

import (
	"context"
	"time"
)

// healAgain is when a port is tried again that somebody else has taken while
// there was no proxy.
const healAgain = 2 * time.Second

// keepProxy starts a new proxy as soon as the one that there was has ended,
// until ctx ends.
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
			d.cfg.Log.Error("open the proxy's ports again", "error", err)
			again = time.After(healAgain)
		}
	}
}

func (d *Daemon) healProxy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	healed, err := d.engine.HealProxy(ctx)
	if healed {
		d.cfg.Log.Warn("the proxy has died, and another is in its place: connections through it are lost")
	}
	return err
}
