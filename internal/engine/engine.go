// Package engine applies a state to one host: it builds a plan, compares
// the plan with the state of the kernel and of the proxy, and carries out the steps
// between the two. It repairs differences by doing the same again. How networks
// connect sandboxes and how ports are published is decided by drivers and publish
// modes, not by the engine.
//
// Theory of operation. The order of the steps never leaves a path half made.
// Sockets are opened first, because a port that is in use must fail before anything
// is changed. Settings, links, addresses and routes follow in the plan's order,
// then all nftables changes in one transaction. Objects that are left over are
// removed last, in the reverse order. The engine lists how to undo each step; if
// one fails before or in the transaction, it undoes all earlier steps.
package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"fairlead/internal/ipam"
	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/iptables"
	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/kernel/rawtcp"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rtnl/device"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
)

// Kernel has the objects of a host; *kernel.Host implements it.
type Kernel interface {
	// Apply carries out the steps in their order and stops at the first batch that
	// fails (plan.Batches). It returns how many steps may have changed the host. The
	// error is a *plan.StepError if the batch is a single object.
	Apply([]plan.Op) (done int, err error)
	// Observe returns the existing objects of the plan that was applied, of the
	// plan that is wanted, and all other objects of Fairlead.
	Observe(should, want plan.Plan) (plan.Plan, error)
	// ObservePart returns the existing ones of the objects. If one of them is in an
	// nft table, it returns everything in that table.
	ObservePart(plan.Plan) (plan.Plan, error)
	// Sockets returns the reader of the host's sockets.
	Sockets() *sockdiag.Reader
	// Net returns the reader of the host's links and settings.
	Net() *rtnl.Reader
	// Devices returns what moves devices into sandboxes.
	Devices() *device.Handle
	// Release closes the handles into sandboxes.
	Release()
}

// Flows has the flows that the kernel tracks; *kernel.Host implements it.
type Flows interface {
	// Conntrack returns the host's conntrack table.
	Conntrack() *conntrack.Table
	// IPVS returns Fairlead's virtual services of IPVS.
	IPVS() *ipvs.Handle
	// TCP returns what resets TCP connections.
	TCP() *rawtcp.Handle
}

// Inspector answers questions about the host; *kernel.Host implements it.
type Inspector interface {
	// Lacks returns which of the features of eBPF programs the kernel lacks, each with the reason. It may load programs.
	Lacks(features ...plan.Feature) (map[plan.Feature]string, error)
	// LoadServices loads the eBPF programs for the first virtual service. drop releases what no service has used.
	LoadServices() (drop func() error, err error)
	// EBPF returns the eBPF data path.
	EBPF() *datapath.Handle
	// IPTables returns the filter tables of iptables.
	IPTables() *iptables.Handle
}

// Proxy is the user-space proxy; *proxy.Proxy implements it.
type Proxy interface {
	// Set may return an UnopenedError, which the engine returns after it has undone what it has done.
	Set(context.Context, proxy.Config) error
	Stats(context.Context) (model.ProxyStats, error)
	Listeners(context.Context) ([]proxy.ListenerStats, error)
	// Ended reports whether the proxy has ended. It may ask the proxy.
	Ended(context.Context) bool
	// Done returns a channel that is closed some time after the proxy has ended.
	Done() <-chan struct{}
	Close() error
}

// Store loads and saves the record of the host.
type Store interface {
	Load() (store.Record, error)
	Save(store.Record) error
}

// Config holds the parts that an engine is built from.
type Config struct {
	Kernel    Kernel
	Flows     Flows
	Inspector Inspector
	// StartProxy starts the proxy in the host's namespace. The engine calls it when
	// the first port needs the proxy.
	StartProxy func(context.Context) (Proxy, error)
	// FindProxy returns the proxy that an earlier engine left running; nil if there
	// is none. The field is nil if proxies end with their engine.
	FindProxy func(context.Context) (Keeper, error)
	Store     Store
	// Facts need not contain which features of eBPF programs are missing (Inspector.Lacks).
	Facts plan.Facts
	// Later gets a function that waits until clients have been reset, and then removes the
	// virtual addresses that are needed only for that. It must return at once, and another
	// goroutine must call the function. If nil, the engine waits before it returns.
	Later func(finish func() error)
}

// Engine keeps one host in the state that was last applied. It is safe for concurrent use.
type Engine struct {
	cfg Config

	mu    sync.Mutex
	proxy Proxy
	// adopted is true if the engine has looked for the proxy of an earlier engine.
	adopted bool
	// applied are the objects that the engine has applied. It is nil if the kernel
	// must be observed first.
	applied plan.Plan
	// userspace are the sockets of the proxy.
	userspace plan.Plan
	// lost are the sockets of a proxy that has ended, until HealProxy has opened them again.
	lost plan.Plan
	// resets are the resets that Config.Later has not finished yet.
	resets  resets
	planned planned
	routers routers
	// last are the addresses that Set has leased last.
	last ipam.Last
}

// New returns an engine. It does not change the host.
func New(cfg Config) *Engine { return &Engine{cfg: cfg, last: ipam.Last{}} }

// Plan returns the steps that Set would carry out, and changes nothing.
func (e *Engine) Plan(want model.State) ([]plan.Op, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.adoptProxy(context.Background()); err != nil {
		return nil, err
	}
	record, err := e.load()
	if err != nil {
		return nil, err
	}
	t, err := e.target(want, record)
	if err != nil {
		return nil, err
	}
	have, err := e.have(record, t.plan)
	return diff(record, have, t.plan), err
}

// Set applies a state to the host. It returns that state with leased
// addresses and chosen modes filled in. If an object cannot be created, Set
// restores the host's earlier state.
func (e *Engine) Set(ctx context.Context, want model.State) (model.State, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.set(ctx, want)
}

func (e *Engine) set(ctx context.Context, want model.State) (model.State, error) {
	if err := e.adoptProxy(ctx); err != nil {
		return want, err
	}
	before, err := e.load()
	if err != nil {
		return want, err
	}
	t, err := e.target(want, before)
	if err != nil {
		return want, err
	}
	if err := shadowed(e.cfg.Kernel, before.Applied, t.state); err != nil {
		return want, err
	}
	byAccount := e.applied != nil
	made, err := e.reach(ctx, before, t, want)
	var bind *proxy.BindError
	var inUse *sockdiag.PortInUseError
	var unopened *UnopenedError
	if err != nil && !made && byAccount && !errors.As(err, &bind) && !errors.As(err, &inUse) &&
		!errors.As(err, &unopened) {
		// The engine's list of applied objects may be wrong: observe the kernel and
		// the proxy.
		e.dropDeadProxy(ctx)
		made, err = e.reach(ctx, before, t, want)
	}
	if err != nil && !made {
		return want, errors.Join(e.nameRefused(t, err), e.save(before))
	}
	maps.Copy(e.last, t.last)
	return t.state, err
}

// reach changes the host to the target.
func (e *Engine) reach(ctx context.Context, before store.Record, t target, want model.State) (made bool, err error) {
	have, err := e.have(before, t.plan)
	if err != nil {
		return false, err
	}
	record := store.Record{Applied: want, Leases: t.leases, Settings: slices.Clone(before.Settings),
		Inside:  slices.Clone(before.Inside),
		Virtual: slices.Clone(before.Virtual), Devices: slices.Clone(before.Devices)}
	return e.apply(ctx, &record, have, t.plan)
}

// Lease returns the state's endpoints with the addresses that Set would lease, and
// changes nothing.
func (e *Engine) Lease(want model.State) ([]model.Endpoint, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	record, err := e.load()
	if err != nil {
		return nil, err
	}
	g := compile(want)
	facts, err := e.facts(g)
	if err != nil {
		return nil, err
	}
	_, _, err = e.lease(g, record.Leases, facts)
	return g.state.Endpoints, err
}

// completed returns the graph of a state with leased addresses and chosen modes filled
// in, regardless of what is on the host.
func (e *Engine) completed(s model.State) (*graph, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := compile(s)
	facts, err := e.facts(g)
	if err != nil {
		return g, err
	}
	if err := g.supported(facts); err != nil {
		return g, err
	}
	_, _, err = e.complete(g, nil, facts)
	return g, err
}

// Verify returns the steps that would restore the applied state; none if nothing
// differs. It observes the kernel and does not rely on the list of applied objects.
func (e *Engine) Verify(ctx context.Context) ([]plan.Op, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	record, have, t, err := e.observe(ctx)
	return diff(record, have, t.plan), err
}

// Heal carries out the steps that Verify returns, and returns them.
func (e *Engine) Heal(ctx context.Context) ([]plan.Op, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	record, have, t, err := e.observe(ctx)
	if err != nil {
		return nil, err
	}
	differing := diff(record, have, t.plan)
	_, err = e.apply(ctx, &record, have, t.plan)
	return differing, err
}

// TearDown removes all objects of Fairlead from the host, also those that differ
// from the plan, and ends the proxy. It waits until clients have been reset. It
// continues after errors and returns all of them.
func (e *Engine) TearDown(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func(later func(func() error)) { e.cfg.Later = later }(e.cfg.Later)
	e.cfg.Later = nil
	e.applied, e.resets = nil, nil
	_, err := e.set(ctx, model.State{})
	if e.proxy != nil {
		err = errors.Join(err, e.proxy.Close())
		e.proxy, e.userspace, e.lost = nil, nil, nil
	}
	return err
}

// observe discards the list of applied objects, and observes the kernel and the
// proxy.
func (e *Engine) observe(ctx context.Context) (store.Record, plan.Plan, target, error) {
	record, err := e.load()
	if err != nil {
		return record, nil, target{}, err
	}
	t, err := e.target(record.Applied, record)
	if err != nil {
		return record, nil, t, err
	}
	if err := e.adoptProxy(ctx); err != nil {
		return record, nil, t, err
	}
	e.applied = nil
	e.dropDeadProxy(ctx)
	have, err := e.have(record, t.plan)
	return record, have, t, err
}

// dropDeadProxy discards a proxy that has ended, and its sockets.
func (e *Engine) dropDeadProxy(ctx context.Context) {
	if e.proxy != nil && e.proxy.Ended(ctx) {
		_ = e.proxy.Close() // it has ended already
		e.proxy, e.userspace = nil, nil
	}
}

// have returns what the host has: the list of applied objects if there is one, or
// what the kernel, the proxy and the record of changed settings show.
func (e *Engine) have(record store.Record, want plan.Plan) (plan.Plan, error) {
	if e.applied != nil {
		return e.applied, nil
	}
	// A record that this version or kernel cannot interpret fully is no error here:
	// Fairlead's marks in the kernel still identify its objects.
	should, _ := e.target(record.Applied, record)
	have, err := e.cfg.Kernel.Observe(append(should.plan, staleLinks(record)...), want)
	if err != nil {
		return nil, fmt.Errorf("observe host: %w", err)
	}
	seen := map[string]bool{}
	for _, o := range have {
		seen[o.Key()] = true
	}
	for _, o := range e.changed(record) {
		if !seen[o.Key()] {
			have = append(have, o)
		}
	}
	return append(have, e.userspace...), nil
}
