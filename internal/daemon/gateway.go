package daemon

import (
	"context"
	"maps"

	"fairlead/internal/api"
	"fairlead/internal/daemon/gateway"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/upstream"
	"fairlead/internal/model"
)

// gateways computes what the HTTP gateway serves: the desired one, with the present servers of its services.
type gateways struct {
	*state
	services *services
	// keeper gives it to the gateway. It is nil if none can be declared.
	keeper *gateway.Keeper
}

func newGateways(s *state, all *services) *gateways {
	g := &gateways{state: s, services: all}
	if s.cfg.Gateway != nil {
		g.keeper = gateway.New(s.cfg.Gateway, s.cfg.Log)
	}
	return g
}

// want makes the gateway serve the desired state, without waiting for it, and returns the number for await.
func (g *gateways) want(w model.Desired) (number uint64) {
	if g.keeper == nil {
		return 0
	}
	return g.keeper.Want(upstream.Of(w, g.services.pools, g.sandboxes(w)))
}

// sandboxes returns the attached sandboxes with their containers.
func (g *gateways) sandboxes(w model.Desired) pool.Sandboxes {
	return pool.NewSandboxes(w.Attachments, g.full.Endpoints, g.full.Endpoints, g.services.containers)
}

// keep gives the gateway what is wanted, and follows the changes of its servers, until ctx ends.
func (g *gateways) keep(ctx context.Context) {
	if g.keeper != nil {
		go g.follow(ctx)
		g.keeper.Keep(ctx)
	}
}

// follow computes the gateway's servers again when they may have changed, until ctx ends.
func (g *gateways) follow(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.serversChanged:
		}
		g.mu.Lock()
		g.want(g.desired)
		g.mu.Unlock()
	}
}

// checker checks the gateway that files declare, which reads files, and returns the result as spec.Draft needs it.
// The mutex must not be locked.
func (g *gateways) checker(declared *model.Gateway) func(model.Gateway) (api.Mistakes, []string) {
	if g.keeper == nil || declared == nil {
		return nil
	}
	mistakes, notes := g.cfg.Gateway.Check(*declared)
	return func(model.Gateway) (api.Mistakes, []string) { return mistakes, notes }
}

// awaitGateway waits until the gateway serves what files declare, after an apply that has changed the gateway. If it
// cannot, awaitGateway restores what the set of files has declared before. The mutex must not be locked.
func (d *Daemon) awaitGateway(ctx context.Context, c changedGateway) error {
	if c.number == 0 {
		return nil
	}
	err := d.gateways.keeper.Await(ctx, c.number)
	if err == nil || ctx.Err() != nil {
		return err
	}
	replaced := false
	undo := d.step(context.WithoutCancel(ctx), func() error {
		if replaced = d.desired.Gateway != c.gateway; replaced {
			return nil
		}
		return d.applier.restoreSet(c)
	})
	if replaced {
		return undo // another request has replaced it meanwhile, and reports what fails
	}
	return joinUndo(err, undo)
}

// restoreSet restores what the set of files has declared before.
func (ap *applier) restoreSet(c changedGateway) error {
	next := spec.Restored(ap.desired, c.before, c.by)
	if err := ap.leases.Stop(leases.Gone(ap.desired.Attachments, next.Attachments)...); err != nil {
		return err
	}
	for _, a := range next.Attachments {
		if a.Sandbox != "" && a.HostInterface == "" {
			ap.sandboxes.adopt(a)
		}
	}
	maps.Copy(ap.problems, c.cleared)
	defer ap.startLeasing()
	return ap.settle(next)
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

// updateServers makes follow compute the gateway's servers again, and reports that the state has changed.
func (s *state) updateServers() {
	select {
	case s.serversChanged <- struct{}{}:
	default:
	}
	s.changed()
}

// ClusterGateway is the part of the gateway that belongs to the cluster. Its methods may be called concurrently.
type ClusterGateway struct{ d *Daemon }

// NewClusterGateway returns the cluster's part of the daemon's gateway.
func NewClusterGateway(d *Daemon) ClusterGateway { return ClusterGateway{d} }

// Set replaces the objects of the gateway that belong to the cluster; nil removes them.
func (g ClusterGateway) Set(c *model.ClusterGateway) error {
	return g.d.step(g.d.life, func() error {
		next := g.d.desired
		if next.ClusterGateway = c; c.Equal(g.d.desired.ClusterGateway) {
			return nil
		}
		return g.d.applier.settle(next)
	})
}

// Sandboxes returns the sandboxes of this host that selectors of the cluster's gateway find.
func (g ClusterGateway) Sandboxes(by []model.Select) []api.SelectedSandbox {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	return upstream.Selected(by, upstream.OfCluster(g.d.desired.Networks, g.d.gateways.sandboxes(g.d.desired)))
}
