// Package lan creates temporary hosts on one LAN: a switch, and hosts with one link to
// it. It starts no processes and builds no paths.
//
// Every host is a network namespace that is kept open only by a file descriptor of
// this process, as in the package topology.
package lan

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/topology"
	"fairlead/internal/plan"
	"fairlead/internal/store"
)

// Link is the name of every host's link to the switch.
const Link = "eth0"

const (
	// bridge is the name of the switch's bridge.
	bridge = "switch"
	mtu    = 1500
)

// LAN is a switch with hosts.
type LAN struct {
	middle     *kernel.Host
	facts      plan.Facts
	hosts      []*Host
	namespaces []*netns.Namespace
	// routers are the links to hosts that others have created.
	routers []plan.Link
}

// Host is a host on the LAN.
type Host struct {
	*kernel.Host
	facts  plan.Facts
	engine *engine.Engine
}

// New creates a switch without hosts.
func New(facts plan.Facts) (*LAN, error) {
	l := &LAN{facts: facts}
	var err error
	if l.middle, _, err = l.open(); err == nil {
		err = l.middle.Set(plan.Link{Name: bridge, Kind: plan.Bridge, MTU: mtu, Owner: bridge})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a LAN: %w", err), l.Close())
	}
	return l, nil
}

func (l *LAN) open() (*kernel.Host, *netns.Namespace, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, nil, err
	}
	l.namespaces = append(l.namespaces, ns)
	h, err := kernel.Open(ns.Path(), kernel.Options{})
	return h, ns, err
}

// Join creates a host with an address, connected to the port of that name.
func (l *LAN) Join(port string, addr netip.Addr) (*Host, error) {
	k, ns, err := l.open()
	if err != nil {
		return nil, fmt.Errorf("make host %s: %w", port, err)
	}
	h := &Host{Host: k, facts: l.facts}
	l.hosts = append(l.hosts, h)
	return h, l.connect(link(port, ns.Path()), addr)
}

// Route connects a world's server host, which then forwards packets between its wire and
// the LAN. Close removes its link.
func (l *LAN) Route(port string, addr netip.Addr, w *topology.World) (*Host, error) {
	router := w.ServerHost()
	// Until the router's link is deleted, it cannot have another one of that name.
	to := link(port, fmt.Sprintf("/proc/self/fd/%d", router.Netns().Fd()))
	l.routers = append(l.routers, to)
	h := &Host{Host: router, facts: l.facts}
	if err := l.connect(to, addr); err != nil {
		return nil, err
	}
	return h, router.Set(plan.IPForwarding(addr.Is4()))
}

// link returns the link from a port to a host's namespace.
func link(port, namespace string) plan.Link {
	return plan.Link{Name: port, Kind: plan.Veth, MTU: mtu, Owner: port, Master: bridge, Peer: Link,
		PeerNetns: namespace, PeerIPv6: plan.IPv6Fixed}
}

// connect makes the link to a host and gives the host its address.
func (l *LAN) connect(to plan.Link, addr netip.Addr) error {
	for _, o := range []plan.Object{to,
		plan.Address{Netns: to.PeerNetns, Link: Link, Prefix: topology.Subnet(addr)}} {
		if err := l.middle.Set(o); err != nil {
			return fmt.Errorf("make host %s: %w", to.Name, err)
		}
	}
	return nil
}

// Place is where processes of the host run.
func (h *Host) Place() child.Place { return child.Place{Netns: h.Netns()} }

// AddAddress gives the host's link another address, for which the host answers on the
// LAN.
func (h *Host) AddAddress(addr netip.Addr) error {
	return h.Set(plan.Address{Link: Link, Prefix: netip.PrefixFrom(addr, addr.BitLen())})
}

// Engine returns the engine of the host, which it makes at the first call. A host with
// a daemon must not have one.
func (h *Host) Engine() *engine.Engine {
	if h.engine == nil {
		h.engine = engine.New(engine.Config{Kernel: h.Host, Flows: h.Host, Inspector: h.Host, Store: &store.Memory{},
			Facts: h.facts})
	}
	return h.engine
}

// AddRoute makes the host send packets for another network to a router. It is a user's
// route: daemons on the host delete unknown routes that have Fairlead's protocol.
func (h *Host) AddRoute(to netip.Prefix, router netip.Addr) error {
	_, err := program.Shell(h.Do, fmt.Sprintf("ip route add %s via %s dev %s", to, router, Link))
	return err
}

// Sent returns the number of bytes that the host has sent on its link (proc_pid_net(5):
// after the name come 8 columns of what it received, then those of what it sent).
func (h *Host) Sent() (bytes uint64, err error) {
	err = h.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			name, columns, _ := strings.Cut(strings.TrimSpace(line), ":")
			if fields := strings.Fields(columns); name == Link && len(fields) > 8 {
				bytes, err = strconv.ParseUint(fields[8], 10, 64)
				return err
			}
		}
		return fmt.Errorf("the host has no link %s", Link)
	})
	return bytes, err
}

// Close removes the hosts and the switch. It continues after errors, and returns all
// of them.
func (l *LAN) Close() error {
	var errs []error
	for _, to := range l.routers {
		errs = append(errs, l.middle.Del(to))
	}
	for _, h := range l.hosts {
		if h.engine != nil {
			errs = append(errs, h.engine.TearDown(context.Background()))
		}
		errs = append(errs, h.Host.Close())
	}
	if l.middle != nil {
		errs = append(errs, l.middle.Close())
	}
	for _, ns := range l.namespaces {
		errs = append(errs, ns.Close())
	}
	return errors.Join(errs...)
}
