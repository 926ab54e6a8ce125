// Package daemon holds a host at what users have asked for one by one:
// networks, attachments of running sandboxes, publishes. It knows when a
// sandbox is gone and takes what was its own away. It decides nothing about
// how sandboxes are attached or ports published; the engine does.
//
// Theory of operation. What users ask for are wishes, written to the store
// before anything is done. The wishes of the sandboxes that live are a desired
// state, to which the engine brings the host, all at once, each time. What
// happens outside only says where to look again: the kernel tells that a
// namespace is gone (RTM_DELNSID), a pidfd that a process is, and package
// sandbox that a name or a container may have come or gone. A sandbox is known
// by its namespace's cookie, so that another at the same path is another.
//
//	API ──► wishes ──► store
//	          │ of those alive
//	          ▼
//	     desired state ──► engine ──► kernel
//	          ▲
//	namespaces, processes, names, leases
//
// A sandbox that dies while it is attached makes the engine's step fail; then
// its wishes go, and the step is taken again without it. An attachment that is
// kept waits for its sandbox instead.
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

	"fairlead/internal/engine"
	"fairlead/internal/health"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/overlay"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
)

// Host is what the daemon needs of a host; *kernel.Host has it.
type Host interface {
	engine.Kernel
	Counters
	DescribeSandbox(path string) (kernel.Sandbox, error)
	// Reached returns the subnets that the host reaches without Fairlead.
	Reached() ([]kernel.Reached, error)
	WatchSandboxes(context.Context) (<-chan int, error)
	Watch(context.Context) (*kernel.Watcher, error)
	RenewAddresses() error
	BoundBy(cgroup string) ([]kernel.Bound, error)
	// FastPath tells which links' drivers send packets on by themselves.
	FastPath() ([]kernel.FastLink, uint64, error)
	// Ruleset reads the firewall and NAT rules of the host, and what was not read.
	Ruleset() (rules.Ruleset, []string, error)
	RouteTo(kernel.RouteQuery) (kernel.RouteFound, error)
	// TakeEnded tells which clients' connections were reset since it was asked last.
	TakeEnded() []kernel.Ended
	// Do runs a function on a thread in the host's namespace.
	Do(func() error) error
}

// Sandboxes finds running sandboxes; sandbox.Finder has it.
type Sandboxes interface {
	Resolve(ctx context.Context, text string) (sandbox.Sandbox, error)
	Watch(context.Context) (<-chan struct{}, error)
}

// Store keeps the record and the wishes; *store.File has it.
type Store interface {
	engine.Store
	Desired() (model.Desired, error)
	SaveDesired(model.Desired) error
}

// Config is what a daemon is made of.
type Config struct {
	Host      Host
	Store     Store
	Sandboxes Sandboxes
	// DHCP is dhcp.Run.
	DHCP       DHCP
	StartProxy func(context.Context) (engine.Proxy, error)
	// FindProxy is as in engine.Config.
	FindProxy func(context.Context) (engine.Keeper, error)
	// ProxyEnded tells that a proxy has; nil is fine.
	ProxyEnded <-chan struct{}
	// Containers tells of containers that may be real servers; nil is fine.
	Containers Containers
	// Lasting notes outlive a reboot, Passing ones do not; nil keeps none.
	Lasting, Passing Notes
	// CountReals may be nil.
	CountReals CountReals
	// DialReal is as in health.Options.
	DialReal func(model.VirtualService, model.RealServer) health.DialFunc
	Facts    plan.Facts
	Log      *slog.Logger
	// Meter counts what the daemon does; nil is fine.
	Meter Meter
	// Changed is called whenever what the daemon holds has changed; nil is fine.
	Changed func()
}

// applyLimit bounds one step of the engine.
const applyLimit = 2 * time.Minute

// Daemon holds a host. Its methods may be called concurrently.
type Daemon struct {
	cfg    Config
	engine *engine.Engine

	mu      sync.Mutex
	desired model.Desired
	// full is what the engine has reached: with leased addresses and ways.
	full model.State
	// watched are the living sandboxes that are attached, by their references.
	watched map[string]*watchedSandbox
	// external is what is known of the sandboxes of external endpoints, by the
	// names of their attachments.
	external map[string]*external
	// checkExternal holds a value when an external endpoint may be dead.
	checkExternal chan struct{}
	// problems says why an attachment or a publish of the wishes is not
	// applied, by its name.
	problems map[string]string
	// unfit are the networks that are parted, and parted the addresses that
	// their attachments had, by their names.
	unfit       map[string]bool
	unavailable map[string][]netip.Addr
	healer      healer
	journal     journal
	clients     map[string]*client
	// answers are what answers the checks of overlays, by the host's address.
	answers map[netip.Addr]*overlay.Responder
	// health checks real servers.
	health   *health.Monitor
	services services
	// inspect gets the references of sandboxes to look at again.
	inspect chan string
	// counting is held while counters are read, for sums.
	counting sync.Mutex
	sums     sums
	// life ends with the daemon.
	life context.Context
	end  context.CancelFunc
}

// New returns a daemon that has taken over what the store says.
func New(cfg Config) (*Daemon, error) {
	if cfg.Meter == nil {
		cfg.Meter = unmetered{}
	}
	d := &Daemon{
		cfg:     cfg,
		engine:  engine.New(engine.Config{Kernel: cfg.Host, Store: cfg.Store, StartProxy: cfg.StartProxy, FindProxy: cfg.FindProxy, Facts: cfg.Facts}),
		watched: map[string]*watchedSandbox{}, problems: map[string]string{}, clients: map[string]*client{},
		external: map[string]*external{}, checkExternal: make(chan struct{}, 1),
		answers: map[netip.Addr]*overlay.Responder{},
		inspect: make(chan string),
		unfit:   map[string]bool{}, unavailable: map[string][]netip.Addr{},
		healer: healer{wakeup: make(chan struct{}, 1), conflicts: conflicts{}},
	}
	d.services = newServices()
	d.health = health.NewMonitor(health.Options{Means: health.Means{Container: d.containerHealth}, Dial: cfg.DialReal, Changed: d.healthChanged})
	d.life, d.end = context.WithCancel(context.Background())
	desired, err := cfg.Store.Desired()
	if err != nil {
		return nil, fmt.Errorf("read wishes: %w", err)
	}
	// Before anything is applied, so that nothing that strays after it is missed.
	if d.healer.watcher, err = cfg.Host.Watch(d.life); err != nil {
		d.end()
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.recall(desired)
	if err := d.resume(desired); err != nil {
		d.end()
		return nil, err
	}
	d.adopt(desired)
	return d, nil
}

// Run follows what happens to sandboxes until ctx ends.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.end()
	defer d.silence()
	// One context for all: whoever sees that a watch has ended sees why.
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
	// What happened before we watched.
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
			d.verify(func(b *watchedSandbox) bool { return id == kernel.NoSandbox || b.id == id })
		case ref := <-d.inspect:
			d.verify(func(b *watchedSandbox) bool { return b.ref == ref })
		case <-d.checkExternal:
			d.verify(func(*watchedSandbox) bool { return false })
		case <-changed:
			d.verify((*watchedSandbox).moved)
			d.restore(ctx)
		}
	}
}

// TearDown removes everything of ours from the host and forgets all wishes but
// the networks.
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

// Empty reports whether there is nothing to hold: no attachment, no publish, no
// virtual service, and no network of Docker's, which may need the daemon at any
// time.
func (d *Daemon) Empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.desired.Attachments) == 0 && len(d.desired.Services) == 0 &&
		!slices.ContainsFunc(d.desired.Networks, func(n model.Network) bool { return n.Origin == model.FromDocker })
}

// Counts returns how many attachments and publishes users have asked for.
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
