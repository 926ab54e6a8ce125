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
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/daemon/external"
	"fairlead/internal/daemon/heal"
	"fairlead/internal/daemon/journal"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/engine"
	"fairlead/internal/health"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/model"
	"fairlead/internal/overlay"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
)

// Host is the part of a host that the daemon uses. *kernel.Host implements it.
type Host interface {
	WatchSandboxes(context.Context) (<-chan int, error)
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
	DHCP       DHCP
	StartProxy func(context.Context) (engine.Proxy, error)
	// FindProxy is as in engine.Config.
	FindProxy func(context.Context) (engine.Keeper, error)
	// ProxyEnded receives a value when a proxy has ended; it may be nil.
	ProxyEnded <-chan struct{}
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
type Daemon struct {
	cfg    Config
	engine *engine.Engine

	mu      sync.Mutex
	desired model.Desired
	// full is the state that the engine has applied, with leased addresses and the
	// publish modes that it chose.
	full model.State
	// watched has the running sandboxes that are attached, by their references.
	watched map[string]*watchedSandbox
	// external has the sandboxes of external endpoints.
	external *external.Table
	// problems has the reason why an attachment, publish, network or service is not
	// applied, by its name.
	problems map[string]string
	// unavailable has the unavailable networks; keptAddresses has the earlier addresses of
	// their attachments, by the attachments' names.
	unavailable   map[string]bool
	keptAddresses map[string][]netip.Addr
	healer        healer
	journal       journal.Journal
	clients       map[string]*client
	// responders answer the checks of other hosts in overlays, by the local address.
	responders map[netip.Addr]*overlay.Responder
	// health checks real servers.
	health   *health.Monitor
	services services
	// inspect receives the references of sandboxes to check again.
	inspect chan string
	// counting is locked while counters are read. It protects sums.
	counting sync.Mutex
	sums     stats.Sums
	// life ends with the daemon.
	life context.Context
	end  context.CancelFunc
}

// New returns a daemon that has adopted the stored desired state. It applies what it
// can: objects that fail have a problem and do not make New fail. New returns an error
// if the store cannot be read or the kernel's messages cannot be watched.
func New(cfg Config) (*Daemon, error) {
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	d := &Daemon{
		cfg: cfg,
		engine: engine.New(engine.Config{Kernel: cfg.Kernel, Flows: cfg.Flows, Inspector: cfg.Inspector,
			Store: cfg.Store, StartProxy: cfg.StartProxy, FindProxy: cfg.FindProxy, Facts: cfg.Facts}),
		watched: map[string]*watchedSandbox{}, problems: map[string]string{}, clients: map[string]*client{},
		responders:  map[netip.Addr]*overlay.Responder{},
		inspect:     make(chan string),
		unavailable: map[string]bool{}, keptAddresses: map[string][]netip.Addr{},
		healer: healer{wakeup: make(chan struct{}, 1), conflicts: heal.Conflicts{}},
	}
	d.services = newServices()
	d.health = health.NewMonitor(health.Options{Means: health.Means{Container: d.containerHealth}, Dial: cfg.DialReal,
		Changed: d.healthChanged})
	d.life, d.end = context.WithCancel(context.Background())
	d.external = external.NewTable(d.life)
	desired, err := cfg.Store.Desired()
	if err != nil {
		return nil, fmt.Errorf("read desired state: %w", err)
	}
	// The watch begins before anything is applied, so that it misses no later change.
	if d.healer.watcher, err = cfg.Host.Watch(d.life); err != nil {
		d.end()
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restoreNotes(desired)
	if err := d.resume(desired); err != nil {
		d.end()
		return nil, err
	}
	d.adopt(desired)
	return d, nil
}

// Run follows the events of sandboxes and containers, repairs the host and checks real
// servers, until ctx ends. It returns an error if a watch cannot be started or breaks.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.end()
	defer d.closeResponders()
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
	kept.Go(func() { d.follow(ctx) })
	kept.Go(func() { d.health.Run(ctx) })
	kept.Go(func() { d.balance(ctx) })
	kept.Go(func() { d.observe(ctx) })
	kept.Go(func() { d.followContainers(ctx) })
	defer func() { stop(); kept.Wait() }()
	// Check what happened before the watches began.
	d.verify(func(*watchedSandbox) bool { return true })
	d.restore(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case id, ok := <-ended:
			if !ok && ctx.Err() == nil {
				return errors.New("watch network namespaces: the kernel's messages ended")
			}
			d.verify(func(b *watchedSandbox) bool { return id == netns.NoID || b.id == id })
		case ref := <-d.inspect:
			d.verify(func(b *watchedSandbox) bool { return b.ref == ref })
		case <-d.external.Changed():
			d.verify(func(*watchedSandbox) bool { return false })
		case <-changed:
			d.verify((*watchedSandbox).moved)
			d.restore(ctx)
		}
	}
}

// TearDown removes all of Fairlead's objects from the host, and removes everything but
// the networks from the desired state.
func (d *Daemon) TearDown(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopClients()
	next := model.Desired{}
	for _, n := range d.desired.Networks {
		if !d.privateNetwork(n.Name) {
			next.Networks = append(next.Networks, n)
		}
	}
	return errors.Join(d.save(next), d.engine.TearDown(ctx))
}

// Empty reports whether the daemon has nothing to do: there is no attachment, no
// publish, no virtual service, and no network of Docker, which may need the daemon at
// any time.
func (d *Daemon) Empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.desired.Attachments) == 0 && len(d.desired.Services) == 0 &&
		!slices.ContainsFunc(d.desired.Networks, func(n model.Network) bool { return n.Origin == model.FromDocker })
}

// Counts returns the numbers of desired attachments and publishes.
func (d *Daemon) Counts() (attachments, publishes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.desired.Attachments), len(d.desired.Publishes)
}

func (d *Daemon) changed() {
	if d.cfg.Changed != nil {
		d.cfg.Changed()
	}
}
