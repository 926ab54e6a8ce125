package runner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/cgroup"
	"fairlead/internal/child"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// LoadPort is the port of Fairlead's generator; external tools use the ports after
// it, up to LastPort. Every port is published under the same number.
const (
	LoadPort = 8080
	LastPort = 8084
)

// targetPort is the generator's port in a workload that is published via socket.
// It differs from the published port, so a client that bypassed the mapping would
// be refused. The tools use the same port on both sides.
const targetPort = LoadPort + 1000

// rig is one path in a separate world, with its generator's children, so that
// nothing that one path installs slows another down.
type rig struct {
	path    suite.Path
	world   *topology.World
	groups  *ledger.Groups
	server  *load.Server
	clients map[result.Client]*load.Client
	foreign *foreign
	// dock is the path's Docker engine, nil if it has none. programs is the
	// directory of programs that are preferred to those in PATH.
	dock     *dock
	programs string
	// askers are the clients of a container whose start is measured.
	askers map[result.Client]*asker
	// borrowed is true if the engine belongs to another rig.
	borrowed bool
	// crowd are the addresses of the live flows, nil if the suite asks for none.
	crowd []netip.Addr
}

// build builds the path for those of the suite's clients that reach it.
func build(ctx context.Context, p suite.Path, opt Options) (r *rig, err error) {
	r = &rig{path: p, programs: opt.Docker, clients: map[result.Client]*load.Client{}, askers: map[result.Client]*asker{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("build path %s: %w", p.Name, err), r.close())
			r = nil
		}
	}()
	if r.groups, err = ledger.NewGroups(p.Name); err != nil && !errors.Is(err, cgroup.ErrNone) {
		return r, err
	}
	if p.Via == model.ViaSocket && err != nil {
		return r, fmt.Errorf("a workload is identified by its cgroup: %w", err)
	}
	if p.InDocker() && err != nil {
		return r, fmt.Errorf("a Docker engine needs a cgroup: %w", err)
	}
	if !r.takes(opt.Suite, func(w suite.Workload) bool { return w.Event == "" }) {
		return r, nil // each run builds its own world
	}
	if r.world, err = topology.New(opt.Facts, r.options()); err != nil {
		return r, err
	}
	if err = r.attach(ctx); err != nil {
		return r, err
	}
	if slices.ContainsFunc(opt.Suite.Workloads, func(w suite.Workload) bool { return w.Spec.Flows > 0 }) {
		if r.crowd, err = r.world.AddClientAddrs(); err != nil {
			return r, err
		}
	}
	return r, r.startLoad(ctx, opt.Suite)
}

// options returns the world's options: its cgroup determines which processes are
// local clients.
func (r *rig) options() topology.Options {
	opt := topology.Options{MTU: r.path.MTU, ProxyPlace: r.place(child.Place{}, proxyGroup)}
	if r.groups != nil {
		opt.Cgroup = r.groups.Path()
	}
	return opt
}

// listenPort is the port that the generator's server binds.
func (r *rig) listenPort() uint16 {
	if r.path.Via == model.ViaSocket {
		return targetPort
	}
	return LoadPort
}

// attach builds the path to the workload: with Fairlead's engines, with other
// programs, or with both.
func (r *rig) attach(ctx context.Context) error {
	if err := r.wires(); err != nil {
		return err
	}
	if !r.path.ByOthers() {
		if err := r.set(ctx); err != nil {
			return err
		}
	}
	if r.path.Driver == model.DriverRouted || r.path.Peer == suite.HandHops {
		if err := r.world.Route(subnet); err != nil {
			return err
		}
	}
	if r.path.Plane != "" {
		if err := r.world.Route(netip.PrefixFrom(virtual, virtual.BitLen())); err != nil {
			return err
		}
	}
	var err error
	if r.path.Peer != "" {
		r.foreign, err = startForeign(ctx, r)
	}
	return err
}

// wires adds the second wire if the path needs it.
func (r *rig) wires() error {
	switch {
	case r.path.Driver == model.DriverDevice:
		return r.world.AddDevice()
	case r.path.Wires > 1:
		return r.world.AddSecondWire()
	}
	return nil
}

// target is the address that the client dials for a port of the workload.
func (r *rig) target(c result.Client, port uint16) netip.AddrPort {
	if r.path.Direct && (c != result.Remote || r.path.Driver != model.DriverBridge || r.path.Peer == suite.HandHops) {
		return netip.AddrPortFrom(r.workload(), port)
	}
	if r.path.Plane != "" {
		return netip.AddrPortFrom(virtual, port)
	}
	return netip.AddrPortFrom(topology.ServerAddr4, port)
}

// serverPlace is where the workload runs.
func (r *rig) serverPlace() child.Place {
	at := r.world.Server()
	if r.path.Driver != model.DriverHost {
		at = r.world.InSandbox(web)
	}
	at.Contained = !r.path.Bare
	return r.place(at, serverGroup)
}

// clientPlace is where a client runs. The peer of a workload on the host is
// another workload on the host; on an overlay, clients are in sandboxes.
func (r *rig) clientPlace(c result.Client) child.Place {
	switch {
	case c == result.Remote && r.path.Driver == model.DriverVXLAN:
		at := r.world.InSandbox(containerOf)
		at.Contained = true
		return r.place(at, clientGroup)
	case c == result.Remote:
		return r.place(r.world.Client(), clientGroup)
	case c == result.Peer && r.path.Driver != model.DriverHost:
		at := r.world.InSandbox(peer)
		at.Contained = !r.path.Bare
		return r.place(at, clientGroup)
	default:
		at := r.world.Server()
		at.Contained = c == result.Peer && !r.path.Bare
		return r.place(at, clientGroup)
	}
}

// party names one of the ledger's cgroups.
type party int

const (
	clientGroup party = iota
	serverGroup
	proxyGroup
)

// place puts a child into its party's cgroup, if there is cgroup v2.
func (r *rig) place(at child.Place, p party) child.Place {
	if r.groups == nil {
		return at
	}
	switch p {
	case clientGroup:
		at.Cgroup = r.groups.Client
	case serverGroup:
		at.Cgroup = r.groups.Server
	case proxyGroup:
		at.Cgroup = r.groups.Proxy
	}
	return at
}

// parties returns the processes that the ledger accounts for.
func (r *rig) parties(c result.Client) ledger.Parties {
	if r.groups != nil {
		return r.groups.Parties()
	}
	p := ledger.Parties{
		Client: ledger.Party{PIDs: []int{r.clients[c].PID()}},
		Server: ledger.Party{PIDs: []int{r.server.PID()}},
	}
	if r.world.Proxy != nil {
		p.Proxy.PIDs = []int{r.world.Proxy.PID()}
	}
	if r.foreign != nil {
		p.Proxy.PIDs = append(p.Proxy.PIDs, r.foreign.pids()...)
	}
	return p
}

// offer returns a rig for a path that differs only in the number of ports that a
// container publishes when it starts.
func (r *rig) offer(p suite.Path) *rig {
	offered := *r
	offered.path, offered.borrowed = p, true
	return &offered
}

// close ends the children and the world; it continues after errors.
func (r *rig) close() error {
	if r.borrowed {
		return nil
	}
	var errs []error
	for _, a := range r.askers {
		if a != nil && a.child != nil {
			errs = append(errs, a.in.Close(), a.child.Ended())
		}
	}
	for _, c := range r.clients {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if r.server != nil {
		errs = append(errs, r.server.Close())
	}
	if r.foreign != nil {
		errs = append(errs, r.foreign.close())
	}
	if r.world != nil {
		errs = append(errs, r.world.Close())
	}
	if r.groups != nil {
		errs = append(errs, r.groups.Close())
	}
	return errors.Join(errs...)
}
