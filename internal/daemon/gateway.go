package daemon

import (
	"context"
	"fmt"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/daemon/upstream"
	"fairlead/internal/model"
)

// Gateway runs the HTTP gateway.
type Gateway interface {
	// Check returns the mistakes in a gateway that files declare, and notes for their author.
	Check(model.Gateway) (api.Mistakes, []string)
	// Run makes the gateway serve these values, whose servers have URLs; nil ends it. When
	// it returns, new requests meet the values. After an error, the gateway may have an
	// earlier configuration. A gateway that ends is started again without the daemon.
	Run(context.Context, *model.Gateway) error
}

// gatewayRetry is the pause before the daemon tries again to run the gateway, e.g. because
// another process had its port.
const gatewayRetry = 2 * time.Second

// gatewayProblem is the key of the gateway's problem.
const gatewayProblem = "gateway"

// gateways keeps the HTTP gateway as declared, with the present servers of its services.
type gateways struct {
	*state
	services *services
	// running is the gateway that runs, with its servers; nil if none runs. It is valid if
	// known is true.
	running *model.Gateway
	known   bool
}

// apply makes the gateway run as desired. If the gateway has a problem already, a failure is
// recorded as its problem, and apply returns nil.
func (g *gateways) apply(w model.Desired) error {
	if g.cfg.Gateway == nil {
		return nil
	}
	next := upstream.Resolve(w.Gateway, upstream.Inputs{Pools: g.services.pools, Selects: g.sandboxes(w).Selects})
	if next != nil {
		next.Cluster = upstream.ResolveCluster(w.ClusterGateway, g.selectsOfCluster(w))
	}
	if g.known && next.Equal(g.running) {
		return nil
	}
	ctx, cancel := context.WithTimeout(g.life, applyLimit)
	defer cancel()
	err := g.cfg.Gateway.Run(ctx, next)
	had := g.problems[gatewayProblem]
	switch {
	case err == nil:
		g.running, g.known = next, true
		delete(g.problems, gatewayProblem)
		return nil
	case had == "":
		g.known = false
		return fmt.Errorf("run the gateway: %w", err)
	case had != err.Error():
		g.problem(gatewayProblem, err)
	}
	g.known = false
	return nil
}

// sandboxes returns the attached sandboxes with their containers.
func (g *gateways) sandboxes(w model.Desired) pool.Sandboxes {
	return pool.NewSandboxes(w.Attachments, g.full.Endpoints, g.full.Endpoints, g.services.containers)
}

// selectsOfCluster returns what selects sandboxes for the cluster: in its networks only. A network of the
// host can have the name of one of the cluster.
func (g *gateways) selectsOfCluster(w model.Desired) upstream.Selects {
	found := g.sandboxes(w)
	return func(by model.Select, v4 bool) []pool.Found {
		if n, _ := (model.State{Networks: w.Networks}).Network(by.Network); !ofCluster(n) {
			return nil
		}
		return found.Selects(by, v4)
	}
}

// keep applies what changes about the gateway's servers while no request is made, and tries
// again after a failure, until ctx ends.
func (g *gateways) keep(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.serversChanged:
		case <-again:
		}
		if again = nil; !g.refresh() {
			again = time.After(gatewayRetry)
		}
	}
}

// refresh applies the desired gateway again, and reports whether it runs.
func (g *gateways) refresh() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.desired.Gateway != nil && g.problems[gatewayProblem] == "" {
		g.problems[gatewayProblem] = notApplied // a failure is not that of a request
	}
	g.warn("run the gateway", g.apply(g.desired))
	if g.known {
		delete(g.problems, gatewayProblem)
	}
	return g.known || g.cfg.Gateway == nil
}

// updateServers makes keep compute the gateway's servers again, and reports that the state has changed.
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
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	next := g.d.desired
	if next.ClusterGateway = c; c.Equal(g.d.desired.ClusterGateway) {
		return nil
	}
	return g.d.applier.settle(next)
}

// Sandboxes returns the sandboxes of this host that selectors of the cluster's gateway find.
func (g ClusterGateway) Sandboxes(by []model.Select) []api.SelectedSandbox {
	g.d.mu.Lock()
	defer g.d.mu.Unlock()
	return upstream.Selected(by, g.d.gateways.selectsOfCluster(g.d.desired))
}
