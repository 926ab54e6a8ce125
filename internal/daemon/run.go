package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"fairlead/internal/daemon/watched"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
)

// New returns a daemon that has adopted the stored desired state. It applies what it
// can: objects that fail have a problem and do not make New fail. New returns an error
// if the store cannot be read or the kernel's messages cannot be watched.
func New(cfg Config) (*Daemon, error) {
	desired, err := cfg.Store.Desired()
	if err != nil {
		return nil, fmt.Errorf("read desired state: %w", err)
	}
	desired, refused := desired.Permitted()
	if refused != nil {
		cfg.Log.Error("restore the services of the cluster", "error", refused)
	}
	life, end := context.WithCancel(context.Background())
	// The watch begins before anything is applied, so that it misses no later change.
	watcher, err := cfg.Host.Watch(life)
	if err != nil {
		end()
		return nil, err
	}
	d := assemble(cfg, life, watcher)
	d.end = end
	desired.Attachments = d.leases.Adopt(desired.Attachments)
	d.state.Lock()
	d.services.RestoreNotes(desired)
	err = d.services.Resume(desired)
	d.state.Unlock()
	if err != nil {
		d.end()
		return nil, err
	}
	d.state.Warn("take over the ports of the proxy", d.engine.AdoptProxy(life))
	d.healer.KeepOutbound(desired)
	d.applier.Adopt(desired)
	return d, nil
}

// Run follows the events of sandboxes and containers, repairs the host and checks real
// servers, until ctx ends. It returns an error if a watch cannot be started or breaks.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.end()
	defer d.overlays.Close()
	// All watches use one context: when a watch ends, this context shows whether the
	// daemon ends too.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended, err := d.cfg.Host.WatchSandboxes(ctx)
	if err != nil {
		return err
	}
	changed, err := d.cfg.Sandboxes.Watch(ctx)
	if err != nil {
		return err
	}
	var kept sync.WaitGroup
	kept.Go(func() { d.healer.KeepProxy(ctx, d.cfg.ProxyEnded) })
	kept.Go(func() { d.healer.Follow(ctx) })
	kept.Go(func() { d.healer.FollowRules(ctx) })
	kept.Go(func() { d.services.Run(ctx) })
	kept.Go(func() { d.keepGateway(ctx) })
	defer func() { stop(); kept.Wait(); d.resets.WaitAll() }()
	// Check what happened before the watches began.
	d.applier.Verify(func(*watched.Sandbox) bool { return true })
	d.applier.Restore(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case id, ok := <-ended:
			if !ok && ctx.Err() == nil {
				return errors.New("watch network namespaces: the kernel's messages ended")
			}
			d.applier.Verify(func(b *watched.Sandbox) bool { return id == netns.NoID || b.ID == id })
		case ref := <-d.sandboxes.Suspects:
			d.applier.Verify(func(b *watched.Sandbox) bool { return b.Ref == ref })
		case <-d.sandboxes.External.Changed():
			d.applier.Verify(func(*watched.Sandbox) bool { return false })
		case <-changed:
			d.applier.Verify((*watched.Sandbox).Moved)
			d.applier.Restore(ctx)
		}
	}
}

// TearDown removes all of Fairlead's objects from the host, and removes everything but
// the networks from the desired state. Run must have returned.
func (d *Daemon) TearDown(ctx context.Context) error {
	err := d.steps.Do(ctx, d.forgetAll)
	if d.keeper != nil {
		err = errors.Join(err, d.keeper.End(ctx))
	}
	return errors.Join(err, d.engine.TearDown(ctx))
}

// forgetAll removes everything but the networks from the desired state.
func (d *Daemon) forgetAll() error {
	if err := d.leases.StopAll(); err != nil {
		return err
	}
	next := model.Desired{}
	for _, n := range d.state.Desired().Networks {
		if !d.state.Desired().PrivateNetwork(n.Name) {
			next.Networks = append(next.Networks, n)
		}
	}
	return d.state.Save(next)
}
