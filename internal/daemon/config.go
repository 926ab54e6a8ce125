package daemon

import (
	"context"
	"log/slog"
	"time"

	"fairlead/internal/daemon/gateway"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/services"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/engine"
	"fairlead/internal/health"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
)

// Host is the part of a host that the daemon uses. *kernel.Host implements it.
type Host interface {
	watched.Host
	WatchSandboxes(context.Context) (<-chan int, error)
	Watch(context.Context) (*watch.Watcher, error)
	// EndFlows ends the connections in the flowtable, and reports whether there is one.
	EndFlows() (bool, error)
	// Deciders returns for each path the reason why outbound connections must not bypass the
	// host's rules. It may wait for other programs, and until the context ends while the rules change.
	Deciders(context.Context, []rules.Path) ([]rules.Reason, error)
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
	Counters  stats.Counters
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
	Containers services.Containers
	// Lasting notes survive a reboot, Passing notes do not. If nil, none are saved.
	Lasting, Passing services.Notes
	// CountReals reads the counters of real servers; it may be nil.
	CountReals stats.CountReals
	// DialReal is as in health.Options.
	DialReal func(model.VirtualService, model.RealServer) health.DialFunc
	// OutboundHold is how long no rule of the host must decide about a network's connections
	// before outbound auto chooses ebpf again. If it is 0, ebpf is chosen at once.
	OutboundHold time.Duration
	Facts        plan.Facts
	Log          *slog.Logger
	// Meter records repairs and their duration; it may be nil.
	Meter Meter
	// Changed is called whenever the daemon's state has changed; it may be nil.
	Changed func()
}

// Meter records what the daemon does to the host. Its methods must return at once, and
// may be called concurrently.
type Meter interface {
	// Applied records how long it took to apply the desired state, and its error.
	Applied(took time.Duration, err error)
	// Healed records that n objects of one kind (e.g. "link", "nft element") differed
	// and were repaired.
	Healed(kind string, n int)
}

// noMeter is used if Config.Meter is nil.
type noMeter struct{}

func (noMeter) Applied(time.Duration, error) {}
func (noMeter) Healed(string, int)           {}
