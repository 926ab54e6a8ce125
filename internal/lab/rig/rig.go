// Package rig holds one path with everything that its measurement needs: the
// hosts, the path, the generator's processes and the counters. Engine makes
// Fairlead's own paths; the package peer has the makers of all others.
//
// # Theory of operation
//
// Every rig has hosts, cgroups and processes that it shares with no other, so that
// nothing that one path installs slows another down. A Maker makes the path. It is
// the only code that knows which program does so, and so what proves that packets
// took the path.
package rig

import (
	"cmp"
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
	"fairlead/internal/plan"
)

// LoadPort is the port of Fairlead's generator; TLSPort is that of its requests with
// TLS. WebPort and SecureWebPort are those of the web server of external tools. These use
// the ports after LoadPort, up to LastPort. Every port is published under the same number.
const (
	LoadPort      = 8080
	TLSPort       = 8081
	WebPort       = 8082
	SecureWebPort = 8083
	LastPort      = 8084
)

// PortOf returns the port for a load.
func PortOf(s load.Spec) uint16 {
	if s.TLS {
		return TLSPort
	}
	return LoadPort
}

// Options configure a Rig.
type Options struct {
	Suite suite.Suite
	Facts plan.Facts
	// Docker is a directory with programs of a Docker engine, which are preferred
	// to those in PATH.
	Docker string
	// Part selects the hosts of the rig, and Uplink connects the one host of a part
	// with another machine.
	Part   topology.Part
	Uplink topology.Uplink
	// Group is the name of the rig's cgroups, unique in this process; empty means the
	// path's name.
	Group string
}

// Rig is one path in a separate world, with its generator's children. A rig of a part
// has the hosts and children of that part.
type Rig struct {
	Path  suite.Path
	Maker Maker
	// World is nil if every run makes a world.
	World *topology.World
	// Groups is nil if the host has no cgroup v2.
	Groups *ledger.Groups
	// Server and Clients are the generator's children, as far as the suite needs
	// them.
	Server  *load.Server
	Clients map[result.Client]*load.Client
	// Outside is the server on the client host, for sandboxes that connect to it; nil if
	// the suite has none.
	Outside *load.Server
	// Crowd are the client's addresses of the live flows, nil if the suite asks for
	// none.
	Crowd []netip.Addr
	// Docker is the directory of programs that are preferred to those in PATH.
	Docker string

	// askers are the clients of a container whose start is measured.
	askers map[result.Client]*asker
	// Facts are those of the machine.
	Facts  plan.Facts
	part   topology.Part
	uplink topology.Uplink
	// wanted are the clients of the suite that reach the workload on this path.
	wanted []result.Client
	// netem are the conditions of the wires; nil if there are none.
	netem *result.Netem
	// processes and undo are what the maker left in the world.
	processes []*child.Process
	undo      []func() error
	// borrowed is true if everything belongs to another rig.
	borrowed bool
}

// New builds the maker's path for those of the suite's clients that reach it.
func New(ctx context.Context, p suite.Path, m Maker, opt Options) (r *Rig, err error) {
	r = &Rig{Path: p, Maker: m, Docker: opt.Docker, part: opt.Part, uplink: opt.Uplink,
		netem: opt.Suite.Netem, Facts: opt.Facts,
		Clients: map[result.Client]*load.Client{}, askers: map[result.Client]*asker{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("build path %s: %w", p.Name, err), r.Close())
			r = nil
		}
	}()
	r.wanted = slices.DeleteFunc(slices.Clone(opt.Suite.Clients), func(c result.Client) bool {
		return !p.Reaches(c) || !r.hosts(c)
	})
	if r.Groups, err = ledger.NewGroups(cmp.Or(opt.Group, p.Name)); err != nil && !errors.Is(err, cgroup.ErrNone) {
		return r, err
	}
	if why := m.Needs().Cgroup; why != "" && err != nil {
		return r, fmt.Errorf("%s: %w", why, err)
	}
	separate := !r.takes(opt.Suite, func(w suite.Workload) bool { return !w.Separate() })
	if separate && r.part == topology.Whole {
		return r, nil // each run builds its own world
	}
	if r.World, err = topology.New(opt.Facts, r.Options()); err != nil {
		return r, err
	}
	if separate {
		return r, nil // each run builds its own world behind the wire
	}
	if err = r.Start(ctx); err != nil {
		return r, err
	}
	if slices.ContainsFunc(opt.Suite.Workloads, func(w suite.Workload) bool { return w.Spec.Flows > 0 }) {
		if r.Crowd, err = r.World.AddClientAddrs(r.Path.Family); err != nil {
			return r, err
		}
	}
	return r, r.startLoad(ctx, opt.Suite)
}

// Wants reports whether the suite measures the path for the client.
func (r *Rig) Wants(c result.Client) bool { return slices.Contains(r.wanted, c) }

// Options returns the options of the rig's world: its cgroup determines which
// processes are local clients.
func (r *Rig) Options() topology.Options {
	opt := topology.Options{MTU: r.Path.MTU, ProxyPlace: r.Place(child.Place{}, ProxyGroup), Part: r.part,
		Uplink: r.uplink}
	if r.Groups != nil {
		opt.Cgroup = r.Groups.Path()
	}
	return opt
}

// Start makes the wires, the client host's routes and the path.
func (r *Rig) Start(ctx context.Context) error {
	if err := r.addWires(); err != nil {
		return err
	}
	if r.part.HasClient() {
		if err := r.addRoutes(); err != nil {
			return err
		}
	}
	if r.part.HasServer() {
		if err := r.Maker.Start(ctx, r); err != nil {
			return err
		}
	}
	if m, ok := r.Maker.(Joining); ok && r.part.HasClient() {
		if err := m.Join(ctx, r); err != nil {
			return err
		}
	}
	if err := r.confine(); err != nil {
		return err
	}
	return r.SetConditions(r.World)
}

// confine makes the links of a part that are on the network between the two machines
// send to the other machine only.
func (r *Rig) confine() error {
	site := siteOf(r.Path)
	switch {
	case r.part == topology.Whole || site.exposed == "":
		return nil
	case r.part == topology.ServerPart:
		return r.World.FixSandbox(Workload, inside.Name, site.exposed)
	case site.exposed == topology.Wire:
		return r.World.ReachSandbox(site.address)
	}
	return nil
}

// addWires makes the wires that the path needs in addition to the first one.
func (r *Rig) addWires() error {
	if wires := siteOf(r.Path).wires; wires != nil {
		if err := wires(r.World); err != nil {
			return err
		}
	}
	if r.Path.Wires > 1 {
		return r.World.AddSecondWire()
	}
	return nil
}

// addRoutes adds the routes of the client host.
func (r *Rig) addRoutes() error {
	at := r.Addresses()
	if siteOf(r.Path).routed {
		if err := r.World.Route(at.Subnet); err != nil {
			return err
		}
	}
	if r.Path.Plane != "" {
		return r.World.Route(at.host(at.Virtual))
	}
	return nil
}

// Addresses returns the addresses of the path's family.
func (r *Rig) Addresses() *Addresses { return AddressesOf(r.Path.Family) }

// Dial returns the address that the client dials for a port of the workload.
func (r *Rig) Dial(c result.Client, port uint16) netip.AddrPort { return r.Maker.Dial(c, port) }

// Keep registers a process that carries the path's packets, to be killed with the
// path.
func (r *Rig) Keep(p *child.Process) { r.processes = append(r.processes, p) }

// Undo registers what removes a part of the path before its world is removed.
func (r *Rig) Undo(fn func() error) { r.undo = append(r.undo, fn) }

// ServerPlace is where the server of a client runs: where the workload is, or, if the
// workload's sandbox is the client, on the client host.
func (r *Rig) ServerPlace(c result.Client) child.Place {
	if c == result.Outbound {
		return r.Place(r.World.Client(), ServerGroup)
	}
	at := r.World.Server()
	if !siteOf(r.Path).inHost {
		at = r.World.InSandbox(Workload)
	}
	at.Contained = !r.Path.Bare
	return r.Place(at, ServerGroup)
}

// ClientPlace is where a client runs. The peer of a workload on the host is
// another workload on the host, also if it were of another network; on an overlay,
// clients are in sandboxes.
func (r *Rig) ClientPlace(c result.Client) child.Place {
	site := siteOf(r.Path)
	var at child.Place
	switch {
	case c == result.Remote && site.visitor != "":
		at = r.World.InSandbox(site.visitor)
		at.Contained = true
	case c == result.Remote:
		at = r.World.Client()
	case c != result.Local && !site.inHost:
		at = r.World.InSandbox(residents[c])
		at.Contained = !r.Path.Bare
	default:
		at = r.World.Server()
		at.Contained = c != result.Local && !r.Path.Bare
	}
	return r.Place(at, ClientGroup)
}

// residents are the sandboxes of clients on the server host.
var residents = map[result.Client]string{result.Peer: Neighbor, result.OtherNetwork: Other, result.Outbound: Workload}

// Party names one of the ledger's cgroups.
type Party int

// The parties.
const (
	ClientGroup Party = iota
	ServerGroup
	ProxyGroup
)

// Place puts a child into its party's cgroup, if there is cgroup v2.
func (r *Rig) Place(at child.Place, p Party) child.Place {
	if r.Groups == nil {
		return at
	}
	switch p {
	case ClientGroup:
		at.Cgroup = r.Groups.Client
	case ServerGroup:
		at.Cgroup = r.Groups.Server
	case ProxyGroup:
		at.Cgroup = r.Groups.Proxy
	}
	return at
}

// Parties returns the processes that the ledger accounts for.
func (r *Rig) Parties(c result.Client) ledger.Parties {
	if r.Groups != nil {
		return r.Groups.Parties()
	}
	var p ledger.Parties
	if client := r.Clients[c]; client != nil {
		p.Client.PIDs = []int{client.PID()}
	}
	for _, server := range []*load.Server{r.Server, r.Outside} {
		if server != nil {
			p.Server.PIDs = append(p.Server.PIDs, server.PID())
		}
	}
	if r.World.Proxy != nil {
		p.Proxy.PIDs = []int{r.World.Proxy.PID()}
	}
	for _, process := range r.processes {
		p.Proxy.PIDs = append(p.Proxy.PIDs, process.Cmd.Process.Pid)
	}
	return p
}

// Offer returns a rig for a path that differs only in the number of ports that a
// container publishes when it starts.
func (r *Rig) Offer(p suite.Path) *Rig {
	offered := *r
	offered.Path, offered.borrowed = p, true
	return &offered
}

// Remove kills the processes of the maker and undoes what it has registered.
func (r *Rig) Remove() error {
	for _, p := range r.processes {
		_ = p.Kill() // its exit status says only that it was killed
	}
	var errs []error
	for _, undo := range slices.Backward(r.undo) {
		errs = append(errs, undo())
	}
	r.processes, r.undo = nil, nil
	return errors.Join(errs...)
}

// Close ends the children and removes the path and its world. It continues after
// errors, and returns all of them.
func (r *Rig) Close() error {
	if r.borrowed {
		return nil
	}
	var errs []error
	for _, a := range r.askers {
		if a != nil && a.worker != nil {
			errs = append(errs, a.worker.In.Close(), a.worker.Ended())
			a.worker.Close()
		}
	}
	for _, c := range r.Clients {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	for _, server := range []*load.Server{r.Server, r.Outside} {
		if server != nil {
			errs = append(errs, server.Close())
		}
	}
	errs = append(errs, r.Remove())
	if r.World != nil {
		errs = append(errs, r.World.Close())
	}
	if r.Groups != nil {
		errs = append(errs, r.Groups.Close())
	}
	return errors.Join(errs...)
}
