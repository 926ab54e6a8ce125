package daemon

import (
	"context"

	"fairlead/internal/api"
	"fairlead/internal/daemon/applier"
	"fairlead/internal/daemon/endpoints"
	"fairlead/internal/daemon/gateway"
	"fairlead/internal/daemon/leases"
	"fairlead/internal/daemon/networks"
	"fairlead/internal/daemon/repair"
	"fairlead/internal/daemon/resets"
	"fairlead/internal/daemon/services"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/state"
	"fairlead/internal/daemon/stats"
	"fairlead/internal/daemon/step"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/engine"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// assemble returns a daemon with its parts, in the order in which they may use each other. Its life ends with life.
func assemble(cfg Config, life context.Context, watcher *watch.Watcher) *Daemon {
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	s := state.New(state.Config{Store: cfg.Store, Log: cfg.Log, Life: life, Changed: cfg.Changed})
	d := &Daemon{cfg: cfg, state: s, resets: resets.New(s)}
	d.leases = leases.New(leases.Config{Run: cfg.DHCP, Log: cfg.Log, Changed: s.Changed,
		Apply: func(name string, l model.Lease, current func() bool) error {
			return d.applier.ApplyLease(name, l, current)
		}})
	ports := sockets.NewProxies(sockets.Config{Start: cfg.StartProxy, Find: cfg.FindProxy, Report: d.reportProxy})
	d.steps = step.NewRunner(s, ports, d.resets, d.leases)
	d.engine = engine.New(engine.Config{Kernel: cfg.Kernel, Flows: cfg.Flows, Inspector: cfg.Inspector,
		Store: cfg.Store, StartProxy: ports.Start, FindProxy: ports.Finder(), Facts: cfg.Facts,
		Later: d.steps.ResetLater})
	d.addParts(watcher)
	return d
}

// addParts adds the parts that use the engine.
func (d *Daemon) addParts(watcher *watch.Watcher) {
	cfg, s := d.cfg, d.state
	d.networks = networks.New(s, d.engine, cfg.Kernel, cfg.OutboundHold)
	d.overlays = networks.NewOverlays(s, cfg.Kernel, cfg.Counters, cfg.Host.Do)
	d.sandboxes = watched.New(s, cfg.Host)
	d.services = services.New(services.Config{State: s, Steps: d.steps, Networks: d.networks, Engine: d.engine,
		Resets: d.resets, Flows: cfg.Flows, Inspector: cfg.Inspector, LoadRecord: cfg.Store.Load,
		Applied: cfg.Meter.Applied, Lasting: cfg.Lasting, Passing: cfg.Passing, Containers: cfg.Containers,
		CountReals: cfg.CountReals, DialReal: cfg.DialReal})
	d.counters = stats.NewReader(stats.Config{State: s, Counters: cfg.Counters, Proxied: d.engine.Proxied,
		Services: d.services.Stats})
	if cfg.Gateway != nil {
		d.keeper = gateway.New(cfg.Gateway, cfg.Log, s.Count)
	}
	d.applier = &applier.Applier{State: s, Steps: d.steps, Networks: d.networks, Sandboxes: d.sandboxes,
		Services: d.services, Engine: d.engine, Leases: d.leases, Resolve: cfg.Sandboxes.Resolve,
		Applied: func() { d.overlays.Update(); d.wantGateway() }}
	d.serviceRequests = services.NewRequests(d.services, d.applier.Settle, d.applier.Plan)
	d.engineRequests = endpoints.New(endpoints.Config{State: s, Steps: d.steps, Sandboxes: d.sandboxes,
		Applier: d.applier, Engine: d.engine, Kernel: cfg.Kernel, Resolve: cfg.Sandboxes.Resolve})
	d.healer = repair.New(repair.Config{State: s, Steps: d.steps, Networks: d.networks, Sandboxes: d.sandboxes,
		Services: d.services, Applier: d.applier, Endpoints: d.engineRequests, Engine: d.engine, Leases: d.leases,
		Watcher: watcher, Healed: cfg.Meter.Healed,
		RenewHost: func() error { return cfg.Inspector.EBPF().RenewHost() },
		EndFlows:  cfg.Host.EndFlows,
		Deciders:  cfg.Host.Deciders,
		Outbounds: func() ([]plan.Outbound, error) { return datapath.Outbounds(cfg.Inspector.EBPF()) },
		Exhausted: func() uint64 { return datapath.Exhausted(cfg.Inspector.EBPF()) }})
}

// reportProxy notes that the proxy refuses its configuration, or has taken it again. It needs no lock.
func (d *Daemon) reportProxy(err error) {
	e := api.Event{Kind: api.Healed, Object: "the proxy's ports"}
	if err != nil {
		e.Kind, e.Detail = api.Unhealed, err.Error()
	}
	d.state.Note(e)
}
