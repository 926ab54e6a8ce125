// Package engine is the one loop: it turns desired state into a plan, tells
// the plan from what the kernel holds, takes the steps between the two, and
// heals what strays by taking them again. It decides how nothing is attached
// or published; drivers and ways do.
//
// Theory of operation. Steps go in an order that never leaves a half-made
// path open: sockets first, because a taken port must fail before anything
// is touched; then settings, links, addresses and routes in the plan's order;
// then every nftables change in one transaction; then what is left over goes
// away in the reverse order. A failure before the transaction takes every
// step back from an explicit list.
package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
)

// Kernel is what the engine needs of a host; *kernel.Host has it.
type Kernel interface {
	Set(plan.Object) error
	Del(plan.Object) error
	Transact([]plan.Op) error
	// Prepare comes before anything is attached that the steps on the eBPF table
	// need.
	Prepare([]plan.Op) error
	// ApplyEBPF carries out the steps on the eBPF table, all of them or none.
	ApplyEBPF([]plan.Op) error
	// CheckPorts returns a *kernel.InUseError if a socket holds a port of the leads.
	CheckPorts([]plan.EBPFMapping) error
	// Observe tells what is there of the plan that should be, of the one that
	// is wanted, and of anything else of ours.
	Observe(should, want plan.Plan) (plan.Plan, error)
	// ObservePart tells what is there of some objects; with any of the nft
	// table, all that is in it.
	ObservePart(plan.Plan) (plan.Plan, error)
	ReadSysctl(plan.Sysctl) (string, error)
	WriteSysctl(plan.Sysctl) error
	// DescribeDevice returns a description of a device that is on the host, empty
	// if it is handed over or not there.
	DescribeDevice(plan.Device) (string, error)
	// RecallDevices replaces the descriptions, by plan.Device.Device, by which
	// devices are given back.
	RecallDevices(map[string]string)
	// FlushFlows has conntrack forget flows, and returns them.
	FlushFlows(match func(kernel.Flow) bool) ([]kernel.Flow, error)
	// IPVSFlows returns those flows of IPVS.
	IPVSFlows(match func(kernel.Flow) bool) ([]kernel.Flow, error)
	// ResetClients ends TCP connections to addresses that are the host's still.
	ResetClients([]kernel.Flow) error
	// Balances says why the kernel cannot have the eBPF plane, where Facts do not.
	Balances() error
	LocalAddrs() ([]netip.Addr, error)
	// Firewalls returns the filter tables in which Docker drops forwarded packets.
	Firewalls() ([]plan.Firewall, error)
	// Links answers what networks ask of the host's links (model.Network.Asks).
	Links(asked []string) (map[string]plan.HostLink, error)
	// BindKey returns what the eBPF hooks at bind know the proxy's sockets by, 0
	// if there are no hooks.
	BindKey() (uint64, error)
	PortOwner(model.Proto, netip.AddrPort) (kernel.Owner, error)
	Release()
}

// Proxy is the user-space proxy; *proxy.Proxy has it.
type Proxy interface {
	Set(context.Context, proxy.Config) error
	// Stats fails once the proxy is gone.
	Stats(context.Context) (proxy.Stats, error)
	Listeners(context.Context) ([]proxy.ListenerStats, error)
	Close() error
}

// Store keeps the record of the host.
type Store interface {
	Load() (store.Record, error)
	Save(store.Record) error
}

// Config is what an engine is made of.
type Config struct {
	Kernel Kernel
	// StartProxy starts the proxy in the host's namespace; it is called when
	// the first port needs it.
	StartProxy func(context.Context) (Proxy, error)
	// FindProxy finds the one that an engine before has left, nil if there is
	// none. It is nil where proxies end with their engine.
	FindProxy func(context.Context) (Keeper, error)
	Store     Store
	Facts     plan.Facts
}

// Engine holds one host at the desired state. It is safe for concurrent use.
type Engine struct {
	cfg Config

	mu    sync.Mutex
	proxy Proxy
	// adopted says that the proxy of the engine before us is ours, if there is one.
	adopted bool
	// applied is what the host holds by our own account; nil means that the
	// kernel must be asked.
	applied plan.Plan
	// userspace is what the proxy holds.
	userspace plan.Plan
	planned   planned
}

// New returns an engine. It touches nothing yet.
func New(cfg Config) *Engine { return &Engine{cfg: cfg} }

// Plan returns the steps that Set would take, and takes none.
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

// Set brings the host to the desired state and returns that state with the
// leased addresses and chosen ways filled in. When it fails because something
// cannot be made, the host is as it was before.
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
	if err := e.shadowed(before.Desired, t.full); err != nil {
		return want, err
	}
	byAccount := e.applied != nil
	made, err := e.reach(ctx, before, t, want)
	var bind *proxy.BindError
	var inUse *kernel.PortInUseError
	if err != nil && !made && byAccount && !errors.As(err, &bind) && !errors.As(err, &inUse) {
		// Our own account may have been wrong: ask the kernel and the proxy.
		e.dropDeadProxy(ctx)
		made, err = e.reach(ctx, before, t, want)
	}
	if err != nil && !made {
		return want, errors.Join(e.nameOwner(t.full, err), e.save(before))
	}
	return t.full, err
}

// reach leads the host to the target.
func (e *Engine) reach(ctx context.Context, before store.Record, t target, want model.State) (made bool, err error) {
	have, err := e.have(before, t.plan)
	if err != nil {
		return false, err
	}
	record := store.Record{Desired: want, Leases: t.leases, Settings: slices.Clone(before.Settings), Inside: slices.Clone(before.Inside),
		Virtual: slices.Clone(before.Virtual), Devices: slices.Clone(before.Devices)}
	return e.apply(ctx, &record, have, t.plan)
}

// State returns the desired state as Set does: with the leased addresses and
// chosen ways filled in.
func (e *Engine) State() (model.State, error) {
	record, err := e.load()
	if err != nil {
		return model.State{}, err
	}
	facts, err := e.facts(record.Desired)
	if err != nil {
		return model.State{}, err
	}
	full, _, err := e.complete(record.Desired, record.Leases, facts)
	return full, err
}

// Complete returns a state with leased addresses and chosen ways filled in,
// without regard to what the host holds.
func (e *Engine) Complete(s model.State) (model.State, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	facts, err := e.facts(s)
	if err != nil {
		return s, err
	}
	if err := e.supported(s, facts); err != nil {
		return s, err
	}
	full, _, err := e.complete(s, nil, facts)
	return full, err
}

// Verify returns the steps that would bring the host back to the desired
// state: none when nothing strayed. It asks the kernel, not our own account.
func (e *Engine) Verify(ctx context.Context) ([]plan.Op, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	record, have, t, err := e.observe(ctx)
	return diff(record, have, t.plan), err
}

// Heal takes the steps that Verify returns, and returns them.
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

// TearDown removes everything of ours from the host, also what strayed, and
// ends the proxy. It goes on over errors and returns them all.
func (e *Engine) TearDown(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.applied = nil
	_, err := e.set(ctx, model.State{})
	if e.proxy != nil {
		err = errors.Join(err, e.proxy.Close())
		e.proxy, e.userspace = nil, nil
	}
	return err
}

// observe forgets our own account and asks the kernel and the proxy.
func (e *Engine) observe(ctx context.Context) (store.Record, plan.Plan, target, error) {
	record, err := e.load()
	if err != nil {
		return record, nil, target{}, err
	}
	t, err := e.target(record.Desired, record)
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

// dropDeadProxy forgets a proxy that is gone, and what it held.
func (e *Engine) dropDeadProxy(ctx context.Context) {
	if e.proxy == nil {
		return
	}
	if _, dead := e.proxy.Stats(ctx); dead != nil && ctx.Err() == nil {
		_ = e.proxy.Close() // it is gone already
		e.proxy, e.userspace = nil, nil
	}
}

// have returns what the host holds: by our own account when we have one,
// else what the kernel, the proxy and the record of changed settings say.
func (e *Engine) have(record store.Record, want plan.Plan) (plan.Plan, error) {
	if e.applied != nil {
		return e.applied, nil
	}
	// A record that this version or kernel can make nothing of still leaves
	// our marks to go by.
	should, _ := e.target(record.Desired, record)
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
