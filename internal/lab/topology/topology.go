// Package topology creates the laboratory's temporary hosts: a client host, a
// server host, the wire between them, and sandboxes. It does not build paths
// inside the server host; the engine does.
//
// # Theory of operation
//
// Every host and sandbox is a network namespace that is kept open only by a file
// descriptor of this process. When the process ends, even if it is killed, the kernel
// removes the namespaces and everything in them.
//
//	client host                     server host
//	198.51.100.1 ══ wire (veth) ══ 198.51.100.2 ── engine's paths ── sandboxes
//	2001:db8:1::1                  2001:db8:1::2
//
// On two machines, each has a world with one of the two hosts. Then the ends of the
// wire are macvlans on the machines' links (kernel.WireOut).
package topology

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"fairlead/internal/child"
	"fairlead/internal/driver"
	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/result"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
)

// EndpointLink returns the name of the server host's link to the endpoint's
// sandbox. Its counters prove which path the traffic took.
func EndpointLink(endpoint string) string { return driver.VethLink(endpoint) }

// TunnelLink returns the name of the link that a host sends an overlay's packets
// through.
func TunnelLink(network string) string { return driver.TunnelLink(network) }

// World is two hosts and their sandboxes, with an engine on the server host. A world
// for one Part has one of the hosts, and only that host's methods may be called.
type World struct {
	// Engine runs the server host.
	Engine *engine.Engine
	// clientEngine runs the client host, nil until a path needs it.
	clientEngine *engine.Engine
	// Proxy is the server host's user-space proxy, nil until a path needs it.
	Proxy *proxy.Proxy

	client, server *kernel.Host
	// usesEBPF is the host whose eBPF programs are counted: server, or the one that
	// CountEBPFOf opened.
	usesEBPF   *kernel.Host
	sandboxes  map[string]*netns.Namespace
	namespaces []*netns.Namespace
	place      child.Place
	facts      plan.Facts
	mtu        int
	part       Part
	uplink     Uplink
}

// Options are the options of a world.
type Options struct {
	// MTU is that of the wires in bytes; 0 means 1500.
	MTU int
	// ProxyPlace is the cgroup of the proxy; New sets its Netns.
	ProxyPlace child.Place
	// Cgroup is the path of the cgroup v2 directory whose processes are the server
	// host's local clients; empty means the root, which has all processes.
	Cgroup string
	// XDP selects the uplinks of the server host that get the fast path.
	XDP datapath.XDP
	// LooseSources accepts clients through any uplink of the server host.
	LooseSources bool
	// Part selects the hosts of the world, and Uplink connects the wire's end of the
	// one host with another machine.
	Part   Part
	Uplink Uplink
}

// Part is the part of a world that a machine has.
type Part string

// The parts: both hosts, or one of them.
const (
	Whole      Part = ""
	ServerPart Part = "server"
	ClientPart Part = "client"
)

// HasServer reports whether the part has the server host.
func (p Part) HasServer() bool { return p != ClientPart }

// HasClient reports whether the part has the client host.
func (p Part) HasClient() bool { return p != ServerPart }

// New creates the hosts of a part, both by default, and a wire, without sandboxes.
func New(facts plan.Facts, opt Options) (*World, error) {
	w := &World{sandboxes: map[string]*netns.Namespace{}, place: opt.ProxyPlace, facts: facts, mtu: opt.MTU,
		part: opt.Part, uplink: opt.Uplink}
	if w.mtu == 0 {
		w.mtu = 1500
	}
	if err := w.build(opt); err != nil {
		return nil, errors.Join(fmt.Errorf("make topology: %w", err), w.Close())
	}
	if w.server == nil {
		return w, nil
	}
	w.place.Netns = w.server.Netns()
	w.Engine = engine.New(engine.Config{Kernel: w.server, Flows: w.server, Inspector: w.server, Store: &store.Memory{},
		Facts: facts, StartProxy: w.startProxy})
	return w, nil
}

// build creates the hosts and the wire.
func (w *World) build(opt Options) (err error) {
	if opt.Part.HasClient() {
		if w.client, err = w.host(kernel.Options{}); err != nil {
			return err
		}
	}
	if opt.Part.HasServer() {
		w.server, err = w.host(kernel.Options{Rest: true, Cgroup: opt.Cgroup, XDP: opt.XDP,
			LooseSources: opt.LooseSources})
		w.usesEBPF = w.server
		if err != nil {
			return err
		}
	}
	return w.wire(Wire, wire)
}

// Part returns the part that the world has.
func (w *World) Part() Part { return w.part }

func (w *World) startProxy(context.Context) (engine.Proxy, error) {
	// The proxy runs until Close, not only until the end of one call.
	p, err := proxy.Start(context.Background(), w.place)
	w.Proxy = p
	return p, err
}

// FastPath returns the links of the server host that have the fast path, and the
// number of packets that took it.
func (w *World) FastPath() ([]model.FastLink, uint64, error) { return w.server.EBPF().FastPath() }

func (w *World) host(opt kernel.Options) (*kernel.Host, error) {
	ns, err := w.namespace()
	if err != nil {
		return nil, err
	}
	return kernel.Open(ns.Path(), opt)
}

func (w *World) namespace() (*netns.Namespace, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	w.namespaces = append(w.namespaces, ns)
	if w.part != Whole {
		err = ns.Do(kernel.KeepQuiet)
	}
	return ns, err
}

// Route adds a route on the client host: the subnet via the server host.
func (w *World) Route(to netip.Prefix) error {
	via := ServerAddr4
	if to.Addr().Is6() {
		via = ServerAddr6
	}
	return w.client.Set(plan.Route{To: to.Masked(), Via: via, Link: Wire})
}

// moreAddrs are additional addresses of the client host, enough for the ports of
// 100,000 flows.
var (
	moreAddrs4 = []netip.Addr{netip.MustParseAddr("198.51.100.11"), netip.MustParseAddr("198.51.100.12")}
	moreAddrs6 = []netip.Addr{netip.MustParseAddr("2001:db8:1::b"), netip.MustParseAddr("2001:db8:1::c")}
)

// udpTimeout is the sysctl for the number of seconds for which conntrack keeps a UDP
// flow without an answer. flowLife is longer than a run with many flows takes.
const udpTimeout, flowLife = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "600"

// AddClientAddrs adds addresses of a family to the client host and returns them, for more flows
// than one address has ports. It also raises the server host's conntrack timeout for
// UDP, so that flows are kept during a whole run.
func (w *World) AddClientAddrs(f result.Family) ([]netip.Addr, error) {
	if w.part != ClientPart {
		if err := w.keepFlows(); err != nil {
			return nil, err
		}
	}
	more := moreAddrs4
	if f.Is6() {
		more = moreAddrs6
	}
	if w.part == ServerPart {
		return more, w.server.FixNeighbours("", Wire, w.uplink.Peer, more)
	}
	for _, a := range more {
		if err := w.client.Set(plan.Address{Link: Wire, Prefix: netip.PrefixFrom(a, a.BitLen())}); err != nil {
			return nil, err
		}
	}
	return more, nil
}

// keepFlows raises the conntrack timeout.
func (w *World) keepFlows() error {
	remember := func() error { return os.WriteFile(udpTimeout, []byte(flowLife), 0) }
	if err := w.DoServer(remember); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("set the conntrack timeout of the server host: %w", err)
	}
	return nil
}

// Sandbox returns the path that names the sandbox in the model. It creates the
// sandbox if there is none of that name.
func (w *World) Sandbox(name string) (path string, err error) {
	ns, ok := w.sandboxes[name]
	if !ok {
		if ns, err = w.namespace(); err != nil {
			return "", err
		}
		w.sandboxes[name] = ns
	}
	return ns.Path(), nil
}

// Client returns the place in which a child process runs on the client host: its network namespace.
func (w *World) Client() child.Place { return child.Place{Netns: w.client.Netns()} }

// Server returns the place in which a child process runs on the server host: its network namespace.
func (w *World) Server() child.Place { return child.Place{Netns: w.server.Netns()} }

// InSandbox returns the place of child processes in the sandbox of that name, which
// must exist.
func (w *World) InSandbox(name string) child.Place {
	return child.Place{Netns: w.sandboxes[name].File()}
}

// ServerHost returns the server host, as the router of hosts behind it.
func (w *World) ServerHost() *kernel.Host { return w.server }

// MorePorts gives clients in the current namespace as many source ports as TCP has:
// closed connections keep theirs for a minute.
func MorePorts() error {
	return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("1024 65535"), 0)
}

// DoClient runs fn on a thread in the client host's network namespace.
func (w *World) DoClient(fn func() error) error { return w.client.Do(fn) }

// DoServer runs fn on a thread in the server host's network namespace.
func (w *World) DoServer(fn func() error) error { return w.server.Do(fn) }

// DoSandbox runs fn on a thread in the sandbox of that name, which must exist.
func (w *World) DoSandbox(name string, fn func() error) error { return w.sandboxes[name].Do(fn) }

// Close ends the proxy and closes the namespaces. It continues after errors, and
// returns all of them.
func (w *World) Close() error {
	var errs []error
	for _, e := range []*engine.Engine{w.Engine, w.clientEngine} {
		if e != nil {
			errs = append(errs, e.TearDown(context.Background()))
		}
	}
	if w.usesEBPF != w.server {
		errs = append(errs, w.usesEBPF.Close())
	}
	for _, h := range []*kernel.Host{w.client, w.server} {
		if h != nil {
			errs = append(errs, h.Close())
		}
	}
	for _, ns := range w.namespaces {
		errs = append(errs, ns.Close())
	}
	return errors.Join(errs...)
}
