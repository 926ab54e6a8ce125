// Package daemon keeps a host in its desired state: networks, attachments of running
// sandboxes, publishes and virtual services. When a sandbox ends, the daemon removes
// what belonged to it. The package does not decide how sandboxes are attached or ports
// published; package engine does.
//
// Theory of operation. The daemon writes each request to the store, as part of the
// desired state of type model.Desired, before it acts. From that it derives a
// model.State with the sandboxes that run now, and the engine always applies the
// complete state. Messages from outside only trigger a check: the kernel reports the end
// of a namespace (RTM_DELNSID), a pidfd the end of a process, and package sandbox that
// a name or a container may have appeared or disappeared. The daemon identifies a
// sandbox by the cookie of its namespace, so that another sandbox at the same path is
// not mistaken for it.
//
//	API ──► model.Desired ──► store
//	          │ of running sandboxes
//	          ▼
//	     model.State ──► engine ──► kernel
//	          ▲
//	namespaces, processes, names, leases
//
// If an attached sandbox ends while the engine applies a step, the step fails. The
// daemon then removes what was desired for that sandbox and repeats the step. An
// attachment with Keep set waits for its sandbox instead.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"fairlead/internal/daemon/gateway"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/engine"
	"fairlead/internal/health"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
)

// Host is the part of a host that the daemon uses. *kernel.Host implements it.
type Host interface {
	WatchSandboxes(context.Context) (<-chan int, error)
	// DescribeSandbox reads the state of the sandbox at path, and makes sure that
	// the namespace has an id.
	DescribeSandbox(path string) (inspect.Sandbox, error)
	Watch(context.Context) (*watch.Watcher, error)
	// Do runs a function on a thread in the host's network namespace.
	Do(func() error) error
}

// Sandboxes finds running sandboxes. sandbox.Finder implements it.
type Sandboxes interface {
	Resolve(ctx context.Context, text string) (sandbox.Sandbox, error)
	Watch(context.Context) (<-chan struct{}, error)
}

// Store saves the record and the desired state. *store.File implements it.
type Store interface {
	engine.Store
	Desired() (model.Desired, error)
	SaveDesired(model.Desired) error
}

// Config contains the dependencies of a daemon.
type Config struct {
	// Kernel, Flows and Inspector are as in engine.Config.
	Kernel    engine.Kernel
	Flows     engine.Flows
	Inspector engine.Inspector
	Counters  Counters
	Host      Host
	Store     Store
	Sandboxes Sandboxes
	// DHCP is dhcp.Run.
	DHCP       leases.DHCP
	StartProxy func(context.Context) (engine.Proxy, error)
	// FindProxy is as in engine.Config.
	FindProxy func(context.Context) (engine.Keeper, error)
	// ProxyEnded receives a value when a proxy has ended; it may be nil.
	ProxyEnded <-chan struct{}
	// Gateway runs the HTTP gateway; if nil, none can be declared.
	Gateway gateway.Runner
	// Containers reports events of containers that may be real servers; it may be nil.
	Containers Containers
	// Lasting notes survive a reboot, Passing notes do not. If nil, none are saved.
	Lasting, Passing Notes
	// CountReals reads the counters of real servers; it may be nil.
	CountReals CountReals
	// DialReal is as in health.Options.
	DialReal func(model.VirtualService, model.RealServer) health.DialFunc
	Facts    plan.Facts
	Log      *slog.Logger
	// Meter records repairs and their duration; it may be nil.
	Meter Meter
	// Changed is called whenever the daemon's state has changed; it may be nil.
	Changed func()
}

// applyLimit is the timeout of one step of the engine.
const applyLimit = 2 * time.Minute

// Daemon keeps one host in its desired state. Its methods may be called concurrently.
// It handles the requests; state says what its parts do.
type Daemon struct {
	*state
	networks  *networks
	sandboxes *sandboxes
	services  *services
	balancer  *balancer
	overlays  *overlays
	applier   *applier
	gateways  *gateways
	externals *externals
	reals     *reals
	healer    *healer
	meters    *meters
}

// New returns a daemon that has adopted the stored desired state. It applies what it
// can: objects that fail have a problem and do not make New fail. New returns an error
// if the store cannot be read or the kernel's messages cannot be watched.
func New(cfg Config) (*Daemon, error) {
	d := newDaemon(newState(cfg))
	desired, err := cfg.Store.Desired()
	if err != nil {
		return nil, fmt.Errorf("read desired state: %w", err)
	}
	desired, refused := desired.Permitted()
	if refused != nil {
		cfg.Log.Error("restore the services of the cluster", "error", refused)
	}
	desired.Attachments = d.leases.Adopt(desired.Attachments)
	// The watch begins before anything is applied, so that it misses no later change.
	if d.healer.watcher, err = cfg.Host.Watch(d.life); err != nil {
		d.end()
		return nil, err
	}
	d.mu.Lock()
	d.services.restoreNotes(desired)
	err = d.services.resume(desired)
	d.mu.Unlock()
	if err != nil {
		d.end()
		return nil, err
	}
	d.warn("take over the ports of the proxy", d.engine.AdoptProxy(d.life))
	d.applier.adopt(desired)
	return d, nil
}

// newDaemon returns a daemon whose parts share s. Its healer has no watcher yet.
func newDaemon(s *state) *Daemon {
	d := &Daemon{state: s, networks: newNetworks(s), sandboxes: newSandboxes(s), overlays: newOverlays(s)}
	d.services = newServices(s, d.networks)
	d.balancer = &balancer{state: s, services: d.services, failed: heal.Retries{}}
	d.meters = &meters{state: s, services: d.services}
	d.gateways = newGateways(s, d.services)
	d.applier = &applier{state: s, networks: d.networks, sandboxes: d.sandboxes, services: d.services,
		overlays: d.overlays, gateways: d.gateways}
	s.leases = newLeases(d.applier)
	d.reals = &reals{state: s, services: d.services, applier: d.applier}
	d.externals = &externals{state: s, sandboxes: d.sandboxes, applier: d.applier}
	d.healer = &healer{state: s, networks: d.networks, sandboxes: d.sandboxes, services: d.services,
		applier: d.applier, externals: d.externals, conflicts: heal.Conflicts{}}
	return d
}

// Run follows the events of sandboxes and containers, repairs the host and checks real
// servers, until ctx ends. It returns an error if a watch cannot be started or breaks.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.end()
	defer d.overlays.close()
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
	kept.Go(func() { d.keepProxy(ctx) })
	kept.Go(func() { d.healer.follow(ctx) })
	kept.Go(func() { d.services.health.Run(ctx) })
	kept.Go(func() { d.balancer.run(ctx) })
	kept.Go(func() { d.balancer.observe(ctx) })
	kept.Go(func() { d.balancer.followContainers(ctx) })
	kept.Go(func() { d.gateways.keep(ctx) })
	defer func() { stop(); kept.Wait(); d.resets.WaitAll() }()
	// Check what happened before the watches began.
	d.applier.verify(func(*watchedSandbox) bool { return true })
	d.applier.restore(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case id, ok := <-ended:
			if !ok && ctx.Err() == nil {
				return errors.New("watch network namespaces: the kernel's messages ended")
			}
			d.applier.verify(func(b *watchedSandbox) bool { return id == netns.NoID || b.id == id })
		case ref := <-d.sandboxes.suspects:
			d.applier.verify(func(b *watchedSandbox) bool { return b.ref == ref })
		case <-d.sandboxes.external.Changed():
			d.applier.verify(func(*watchedSandbox) bool { return false })
		case <-changed:
			d.applier.verify((*watchedSandbox).moved)
			d.applier.restore(ctx)
		}
	}
}

// TearDown removes all of Fairlead's objects from the host, and removes everything but
// the networks from the desired state. Run must have returned.
func (d *Daemon) TearDown(ctx context.Context) error {
	err := d.step(ctx, d.forgetAll)
	if d.gateways.keeper != nil {
		err = errors.Join(err, d.gateways.keeper.End(ctx))
	}
	return errors.Join(err, d.engine.TearDown(ctx))
}

// forgetAll removes everything but the networks from the desired state.
func (d *Daemon) forgetAll() error {
	if err := d.leases.StopAll(); err != nil {
		return err
	}
	next := model.Desired{}
	for _, n := range d.desired.Networks {
		if !d.desired.PrivateNetwork(n.Name) {
			next.Networks = append(next.Networks, n)
		}
	}
	return d.save(next)
}

// Empty reports whether the daemon has nothing to do: there is no attachment, no
// publish, no virtual service, no gateway, and no network of Docker, which may need the daemon at
// any time.
func (d *Daemon) Empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.desired.Attachments) == 0 && len(d.desired.Services) == 0 && d.desired.Gateway == nil &&
		!slices.ContainsFunc(d.desired.Networks, func(n model.Network) bool { return n.Origin == model.FromDocker })
}

// Counts returns the numbers of desired attachments and publishes.
func (d *Daemon) Counts() (attachments, publishes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.desired.Attachments), len(d.desired.Publishes)
}
