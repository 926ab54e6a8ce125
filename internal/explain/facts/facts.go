// Package facts gathers the state of a host that explanations need: sockets and
// their processes, the firewall and NAT rules of all programs, the port mappings
// of Fairlead's eBPF data path, links, containers and settings. It changes
// nothing and judges nothing. It needs neither Fairlead's daemon nor a container
// engine; Facts.Unseen lists what it could not read.
package facts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
)

// Facts are the state of a host at one moment, as far as it could be read.
type Facts struct {
	// Listeners are the host's sockets that accept connections or datagrams.
	Listeners []Listener
	// Rules are all firewall and NAT rules.
	Rules rules.Ruleset
	// EBPFMappings and Grants are the entries of Fairlead's eBPF maps.
	EBPFMappings []plan.EBPFMapping
	Grants       []plan.Grant
	// Outbound are the links of sandboxes whose connections to other hosts Fairlead's
	// eBPF programs translate.
	Outbound []plan.Outbound
	// Services are the virtual services that are in the kernel.
	Services []inspect.InstalledService
	// NoRoute are the addresses of their real servers to which the host has no
	// route.
	NoRoute []netip.Addr
	// NoRoute4 and NoRoute6 are true if the host has no route to distant addresses
	// of the family.
	NoRoute4, NoRoute6 bool
	Links              []inspect.InsideLink
	Routes             []inspect.InsideRoute
	// Containers are the running containers of all engines that answered.
	Containers []sandbox.Listed
	// Engine is true if an engine answered. If false, the containers are unknown.
	Engine bool
	// ProxyTargets are the targets of docker-proxies that no known container has, but
	// another network namespace of this host.
	ProxyTargets []netip.Addr
	// RulesUnread is true if the firewall and NAT rules could not be read.
	RulesUnread bool
	// Settings are sysctl values by name. Sysctls that the kernel lacks are
	// missing.
	Settings map[string]string
	// Neighbours are the neighbour tables of the kernel; none if they are unknown.
	Neighbours []NeighbourTable
	// LocalhostV6 is true if localhost is also ::1.
	LocalhostV6 bool
	// Unseen lists what could not be read, and why.
	Unseen []string
}

// Listener is a socket of the host, with details of its process.
type Listener struct {
	sockdiag.Listener
	// Args is the process's command line.
	Args []string
	// Cgroup is its cgroup v2 directory as the process sees it, e.g. /web.
	Cgroup string
	// Memory is its resident memory in bytes.
	Memory int64
}

// engineTimeout limits the requests to container engines: an explanation without
// containers is better than none.
const engineTimeout = 3 * time.Second

// Gather reads the state of the host h. An error means that links and sockets
// could not be read; what else could not be read is in Facts.Unseen.
func Gather(ctx context.Context, h *kernel.Host, find sandbox.Finder) (Facts, error) {
	var f Facts
	if os.Geteuid() != 0 {
		f.RulesUnread = true
		f.Unseen = append(f.Unseen,
			"the processes of other users, firewall rules and eBPF programs: run as root, e.g. with sudo")
	}
	inside, err := h.Inspect().Inside("")
	if err != nil {
		return f, fmt.Errorf("inspect the host: %w", err)
	}
	f.Links, f.Routes = inside.Links, inside.Routes
	for _, l := range inside.Listeners {
		f.Listeners = append(f.Listeners, Of(l))
	}
	f.Settings, f.Neighbours = settings(h, f.Links), neighbours(h)
	f.NoRoute4, f.NoRoute6 = !routed(h, distant4), !routed(h, distant6)
	f.LocalhostV6 = localhostV6()
	if os.Geteuid() == 0 {
		var unread []string
		if f.Rules, unread, err = h.NFT().Ruleset(); err != nil {
			unread, f.RulesUnread = append(unread, err.Error()), true
		}
		f.Unseen = append(f.Unseen, unread...)
		if f.EBPFMappings, f.Grants, err = h.EBPF().EBPFMappings(); err != nil {
			f.Unseen = append(f.Unseen, err.Error())
		}
		if f.Outbound, err = datapath.Outbounds(h.EBPF()); err != nil {
			f.Unseen = append(f.Unseen, err.Error())
		}
		f.services(h)
	}
	f.containers(ctx, find)
	f.targets(h)
	return f, nil
}

// distant4 and distant6 are addresses for documentation (RFC 5737, RFC 3849):
// only a default route matches them.
var distant4, distant6 = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:ffff::1")

// routed reports whether the host has a route to an address, in any table.
func routed(h *kernel.Host, to netip.Addr) bool {
	_, err := h.Net().RouteTo(rtnl.RouteQuery{To: to})
	var none *rtnl.ErrNoRoute
	return !errors.As(err, &none)
}

// services reads the virtual services, and looks up the routes to their real
// servers.
func (f *Facts) services(h *kernel.Host) {
	var err error
	if f.Services, err = h.Inspect().InstalledServices(); err != nil {
		f.Unseen = append(f.Unseen, err.Error())
	}
	asked := map[netip.Addr]bool{}
	for _, s := range f.Services {
		for _, r := range s.Backends {
			a := r.At.Addr()
			if r.Link != "" || asked[a] {
				continue
			}
			asked[a] = true
			if !routed(h, a) {
				f.NoRoute = append(f.NoRoute, a)
			}
		}
	}
}

// containers lists the engines' containers. A host without an engine is normal.
func (f *Facts) containers(ctx context.Context, find sandbox.Finder) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	var err error
	f.Containers, err = find.Containers(ctx)
	f.Engine = err == nil
	if err != nil && !errors.Is(err, sandbox.ErrNoEngine) {
		f.Unseen = append(f.Unseen, "containers: "+err.Error())
	}
}

// localhostV6 reports whether hosts(5) lists ::1 as localhost.
func localhostV6() bool {
	text, _ := os.ReadFile("/etc/hosts") // without the file, the answer is no
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if names := strings.Fields(line); len(names) > 1 && names[0] == "::1" &&
			slices.Contains(names[1:], "localhost") {
			return true
		}
	}
	return false
}
