// Package fabric creates a temporary data centre for tests: hosts, each with an engine, and
// switches that connect them. It does not create overlays: the engines do that.
//
// Theory of operation. Every host, switch and sandbox is a network namespace that exists only
// through an open file of this process, so everything ends with the process. Host N has one link to
// each switch: under0 to the first, and so on.
//
//	host 1 under0 ── switch 0 ── under0 host 2
//	       under1 ── switch 1 ── under1
package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/internal/store"
	"fairlead/test/features"
)

// Options are the properties of a fabric.
type Options struct {
	Hosts int
	// Switches is the number of switches, each of which connects all hosts; 0 means
	// one.
	Switches int
	// MTU is the MTU of these links, in bytes; 0 means 1500.
	MTU int
}

// Fabric is a set of hosts and switches.
type Fabric struct {
	Hosts []*Host
	// Switches contains the namespaces of the switches. A switch's port N is the link to host N.
	Switches []*kernel.Host
}

// Host is one of the hosts.
type Host struct {
	*kernel.Host
	Engine *engine.Engine

	t         testing.TB
	number    int
	path      string
	sandboxes map[string]*netns.Namespace
}

// New creates a fabric that is removed after the test. It fails the test if an engine cannot remove
// everything.
func New(t testing.TB, opt Options) *Fabric {
	t.Helper()
	facts := features.Facts(t)
	f := &Fabric{}
	for n := range opt.Hosts {
		f.Hosts = append(f.Hosts, newHost(t, facts, n+1))
	}
	for n := range max(opt.Switches, 1) {
		ns := kerneltest.Netns(t)
		sw, err := kernel.Open(ns.Path(), kernel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sw.Close() })
		f.Switches = append(f.Switches, sw)
		f.join(t, n, max(opt.MTU, 0))
	}
	return f
}

func newHost(t testing.TB, facts plan.Facts, number int) *Host {
	t.Helper()
	ns := kerneltest.Netns(t)
	k, err := kernel.Open(ns.Path(), kernel.Options{Rest: true})
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{Host: k, t: t, number: number, path: ns.Path(), sandboxes: map[string]*netns.Namespace{}}
	h.Engine = engine.New(engine.Config{Kernel: k, Flows: k, Inspector: k, Store: &store.Memory{}, Facts: facts,
		StartProxy: func(context.Context) (engine.Proxy, error) {
			return proxy.Start(context.Background(), child.Place{Netns: k.Netns()})
		}})
	t.Cleanup(func() {
		if err := errors.Join(h.Engine.TearDown(context.Background()), k.Close()); err != nil {
			t.Errorf("host %d: %v", number, err)
		}
	})
	return h
}

// join connects every host to the switch. The switch's end of each link has Fairlead's mark, the
// host's end does not, so that engines see links without the mark.
func (f *Fabric) join(t testing.TB, sw, mtu int) {
	t.Helper()
	if mtu == 0 {
		mtu = 1500
	}
	objects := plan.Plan{plan.Link{Name: "switch", Kind: plan.Bridge, MTU: mtu, Owner: "switch"}}
	for _, h := range f.Hosts {
		link := Underlay(sw)
		objects = append(objects, plan.Link{Name: Port(h.number), Kind: plan.Veth, MTU: mtu, Owner: "port",
			Master: "switch", Peer: link, PeerNetns: h.path, PeerIPv6: plan.IPv6Fixed})
		for _, v4 := range []bool{true, false} {
			bits := map[bool]int{true: 24, false: 64}[v4]
			objects = append(objects, plan.Address{Netns: h.path, Link: link,
				Prefix: netip.PrefixFrom(h.Address(sw, v4), bits)})
		}
	}
	for _, o := range objects {
		if err := f.Switches[sw].Set(o); err != nil {
			t.Fatal(err)
		}
	}
}

// Underlay returns the name of a host's link to a switch.
func Underlay(sw int) string { return fmt.Sprint("under", sw) }

// Port returns the name of a switch's link to the host with that number, from 1.
func Port(host int) string { return fmt.Sprint("port", host) }

// Address returns the host's address at a switch.
func (h *Host) Address(sw int, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte{198, 51, byte(100 + sw), byte(h.number)})
	}
	return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 5: byte(sw), 15: byte(h.number)})
}

// Sandbox creates a sandbox with that name, or returns the existing one.
func (h *Host) Sandbox(name string) string {
	if h.sandboxes[name] == nil {
		h.sandboxes[name] = kerneltest.Netns(h.t)
	}
	return h.sandboxes[name].Path()
}

// In returns a function that runs another on a thread inside the sandbox, which
// must exist.
func (h *Host) In(name string) func(func() error) error { return h.sandboxes[name].Do }
