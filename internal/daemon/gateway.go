package daemon

import (
	"context"
	"maps"

	"fairlead/internal/api"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/model"
)

// wantGateway makes the gateway serve the desired state, without waiting for it, and returns the number for
// awaitGateway.
func (d *Daemon) wantGateway() (number uint64) {
	if d.keeper == nil {
		return 0
	}
	return d.keeper.Want(d.services.Gateway())
}

// keepGateway gives the gateway what is wanted, and follows the changes of its servers, until ctx ends.
func (d *Daemon) keepGateway(ctx context.Context) {
	if d.keeper != nil {
		go d.followServers(ctx)
		d.keeper.Keep(ctx)
	}
}

// followServers computes the gateway's servers again when they may have changed, until ctx ends.
func (d *Daemon) followServers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.services.ServersChanged:
		}
		d.state.Lock()
		d.wantGateway()
		d.state.Unlock()
	}
}

// gatewayCheck checks the gateway that files declare, which reads files, and returns the result as spec.Draft needs it.
// The mutex must not be locked.
func (d *Daemon) gatewayCheck(declared *model.Gateway) func(model.Gateway) (api.Mistakes, []string) {
	if d.keeper == nil || declared == nil {
		return nil
	}
	mistakes, notes := d.cfg.Gateway.Check(*declared)
	return func(model.Gateway) (api.Mistakes, []string) { return mistakes, notes }
}

// awaitGateway waits until the gateway serves what files declare, after an apply that has changed the gateway. If it
// cannot, awaitGateway restores what the set of files has declared before. The mutex must not be locked.
func (d *Daemon) awaitGateway(ctx context.Context, c changedGateway) error {
	if c.number == 0 {
		return nil
	}
	err := d.keeper.Await(ctx, c.number)
	if err == nil || ctx.Err() != nil {
		return err
	}
	replaced := false
	undo := d.steps.Do(context.WithoutCancel(ctx), func() error {
		if replaced = d.state.Desired().Gateway != c.gateway; replaced {
			return nil
		}
		return d.restoreSet(c)
	})
	if replaced {
		return undo // another request has replaced it meanwhile, and reports what fails
	}
	return joinUndo(err, undo)
}

// restoreSet restores what the set of files has declared before.
func (d *Daemon) restoreSet(c changedGateway) error {
	w := d.state.Desired()
	next := spec.Restored(w, c.before, c.by)
	if err := d.leases.Stop(leases.Gone(w.Attachments, next.Attachments)...); err != nil {
		return err
	}
	for _, a := range next.Attachments {
		if a.Sandbox != "" && a.HostInterface == "" {
			d.sandboxes.Adopt(a)
		}
	}
	maps.Copy(d.state.Problems, c.cleared)
	defer d.steps.StartLeasing()
	return d.applier.Settle(next)
}

// changedGateway is the gateway that an apply has changed, its number for Keeper.Await, and what was before: the
// desired state, and the problems of what the set of files declares.
type changedGateway struct {
	number  uint64
	gateway *model.Gateway
	before  model.Desired
	by      model.Origin
	cleared map[string]string
}

// ClusterGateway is the part of the gateway that belongs to the cluster. Its methods may be called concurrently.
type ClusterGateway struct{ d *Daemon }

// NewClusterGateway returns the cluster's part of the daemon's gateway.
func NewClusterGateway(d *Daemon) ClusterGateway { return ClusterGateway{d} }

// Set replaces the objects of the gateway that belong to the cluster; nil removes them.
func (g ClusterGateway) Set(c *model.ClusterGateway) error {
	return g.d.steps.Do(g.d.state.Life, func() error {
		next := g.d.state.Desired()
		if next.ClusterGateway = c; c.Equal(g.d.state.Desired().ClusterGateway) {
			return nil
		}
		return g.d.applier.Settle(next)
	})
}

// Sandboxes returns the sandboxes of this host that selectors of the cluster's gateway find.
func (g ClusterGateway) Sandboxes(by []model.Select) []api.SelectedSandbox {
	g.d.state.Lock()
	defer g.d.state.Unlock()
	return g.d.services.Selected(by)
}
