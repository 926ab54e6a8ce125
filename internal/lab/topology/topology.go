// Package topology makes the laboratory's throwaway world: a client host, a
// server host, the wire between them, and sandboxes. Paths inside the server
// host are the engine's to build, not ours.
//
// Theory of operation. Every host and sandbox is a network namespace that
// only our open file holds. When the process ends, however it ends, the
// kernel takes them and everything in them away.
//
//	client host                     server host
//	198.51.100.1 ══ wire (veth) ══ 198.51.100.2 ── engine's paths ── sandboxes
//	2001:db8:1::1                  2001:db8:1::2
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
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
)

// EndpointLink returns the name of the server host's link to the endpoint's
// sandbox, whose counters prove the way that traffic took.
func EndpointLink(endpoint string) string { return driver.VethLink(endpoint) }

// TunnelLink returns the name of a host's link that an overlay's packets leave
// by.
func TunnelLink(network string) string { return driver.TunnelLink(network) }

// World is two hosts and their sandboxes, with an engine on the server host.
type World struct {
	// Engine runs the server host.
	Engine *engine.Engine
	// far runs the client host, nil until a path needs it.
	far *engine.Engine
	// Proxy is the server host's user-space proxy, nil until a path needs it.
	Proxy *proxy.Proxy

	client, server *kernel.Host
	// usesEBPF is whose eBPF programs are counted: server, or what Follow opens.
	usesEBPF   *kernel.Host
	sandboxes  map[string]*kernel.Netns
	namespaces []*kernel.Netns
	place      child.Place
	facts      plan.Facts
	mtu        int
}

// Options tune a world.
type Options struct {
	// MTU of the wires in bytes; 0 means 1500.
	MTU int
	// ProxyPlace says in which cgroup the proxy runs; its Netns is ours to
	// choose.
	ProxyPlace child.Place
	// Cgroup is the path of the cgroup v2 directory whose processes are the
	// server host's local clients; empty means the root, which is everybody.
	Cgroup string
	// XDP says which of the server host's uplinks get the fast path.
	XDP kernel.XDP
	// LooseSources lets clients come by any uplink of the server host.
	LooseSources bool
}

// New makes a world without sandboxes.
func New(facts plan.Facts, opt Options) (*World, error) {
	w := &World{sandboxes: map[string]*kernel.Netns{}, place: opt.ProxyPlace, facts: facts, mtu: opt.MTU}
	if w.mtu == 0 {
		w.mtu = 1500
	}
	var err error
	if w.client, err = w.host(kernel.Options{}); err == nil {
		w.server, err = w.host(kernel.Options{Cgroup: opt.Cgroup, XDP: opt.XDP, LooseSources: opt.LooseSources})
		w.usesEBPF = w.server
	}
	if err == nil {
		err = w.wire(Wire, wire)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make topology: %w", err), w.Close())
	}
	w.place.Netns = w.server.Netns()
	w.Engine = engine.New(engine.Config{Kernel: w.server, Store: &store.Memory{}, Facts: facts, StartProxy: w.startProxy})
	return w, nil
}

func (w *World) startProxy(context.Context) (engine.Proxy, error) {
	// The proxy lives until the world closes, not until one call ends.
	p, err := proxy.Start(context.Background(), w.place)
	w.Proxy = p
	return p, err
}

// FastPath tells which links of the server host have the fast path, and how many
// packets have gone by it.
func (w *World) FastPath() ([]kernel.FastLink, uint64, error) { return w.server.FastPath() }

func (w *World) host(opt kernel.Options) (*kernel.Host, error) {
	ns, err := w.namespace()
	if err != nil {
		return nil, err
	}
	return kernel.Open(ns.Path(), opt)
}

func (w *World) namespace() (*kernel.Netns, error) {
	ns, err := kernel.NewNetns()
	if err == nil {
		w.namespaces = append(w.namespaces, ns)
	}
	return ns, err
}

// Route tells the client host that a subnet is reached through the server.
func (w *World) Route(to netip.Prefix) error {
	via := ServerAddr4
	if to.Addr().Is6() {
		via = ServerAddr6
	}
	return w.client.Set(plan.Route{To: to.Masked(), Via: via, Link: Wire})
}

// crowd are the client host's further addresses, enough for as many ports as
// 100,000 flows need.
var crowd = []netip.Addr{netip.MustParseAddr("198.51.100.11"), netip.MustParseAddr("198.51.100.12")}

// udpTimeout is for how many seconds conntrack remembers a flow that nobody has
// answered; flowLife is longer than a run with many of them takes.
const udpTimeout, flowLife = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "600"

// Crowd gives the client host further addresses and returns them, for more
// flows than one address has ports. The server host is to remember them.
func (w *World) Crowd() ([]netip.Addr, error) {
	remember := func() error { return os.WriteFile(udpTimeout, []byte(flowLife), 0) }
	if err := w.DoServer(remember); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("have the server host remember flows: %w", err)
	}
	for _, a := range crowd {
		if err := w.client.Set(plan.Address{Link: Wire, Prefix: netip.PrefixFrom(a, a.BitLen())}); err != nil {
			return nil, err
		}
	}
	return crowd, nil
}

// Sandbox makes a sandbox of that name, or returns the one there is, and the
// path that names it in the model.
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

// Client, Server and InSandbox say where a child runs.
func (w *World) Client() child.Place { return child.Place{Netns: w.client.Netns()} }

// Server is the server host itself.
func (w *World) Server() child.Place { return child.Place{Netns: w.server.Netns()} }

// InSandbox is the sandbox of that name, which must exist.
func (w *World) InSandbox(name string) child.Place {
	return child.Place{Netns: w.sandboxes[name].File()}
}

// DoClient, DoServer and DoSandbox run fn on a thread inside a namespace.
func (w *World) DoClient(fn func() error) error { return w.client.Do(fn) }

// DoServer runs fn on the server host.
func (w *World) DoServer(fn func() error) error { return w.server.Do(fn) }

// DoSandbox runs fn in the sandbox of that name, which must exist.
func (w *World) DoSandbox(name string, fn func() error) error { return w.sandboxes[name].Do(fn) }

// Close ends the proxy and lets the namespaces go. It goes on over errors.
func (w *World) Close() error {
	var errs []error
	for _, e := range []*engine.Engine{w.Engine, w.far} {
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
