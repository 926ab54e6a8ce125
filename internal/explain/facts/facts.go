// Package facts gathers what a host holds that explanations need: sockets and
// their processes, everybody's firewall and NAT rules, what our eBPF programs
// lead, links, containers, settings. It changes nothing, judges nothing, and
// needs neither our daemon nor a container engine; what could not be seen is
// among the facts.
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
	"fairlead/internal/kernel/rules"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
)

// Facts are what a host holds at one moment, as far as we can see.
type Facts struct {
	// Listeners are the host's sockets that take connections or datagrams.
	Listeners []Listener
	// Rules are all firewall and NAT rules.
	Rules rules.Ruleset
	// EBPFMappings and Grants are what our eBPF programs do.
	EBPFMappings []plan.EBPFMapping
	Grants       []plan.Grant
	// Services are the virtual services that are in the kernel.
	Services []kernel.InstalledService
	// NoRoute are those of their real servers that the host has no route to.
	NoRoute []netip.Addr
	// NoRoute4 and NoRoute6 say that the host has no route to distant addresses.
	NoRoute4, NoRoute6 bool
	Links              []kernel.InsideLink
	Routes             []kernel.InsideRoute
	// Containers are those that run, of all engines that answer.
	Containers []sandbox.Listed
	// Engine says that one has answered; otherwise nobody knows what runs.
	Engine bool
	// Settings are sysctls by their names; those that the kernel lacks are
	// missing.
	Settings map[string]string
	// LocalhostV6 says that localhost is ::1 too.
	LocalhostV6 bool
	// Unseen says what could not be seen, and why.
	Unseen []string
}

// Listener is a socket of the host, with more of its process.
type Listener struct {
	kernel.Listener
	// Args is the process's command line.
	Args []string
	// Cgroup is its cgroup v2 directory as the process sees it, e.g. /web.
	Cgroup string
	// Memory is its resident memory in bytes.
	Memory int64
}

// patience bounds what is asked of a container engine: an explanation without
// containers is better than none.
const patience = 3 * time.Second

// Gather looks at the host.
func Gather(ctx context.Context, h *kernel.Host, find sandbox.Finder) (Facts, error) {
	var f Facts
	if os.Geteuid() != 0 {
		f.Unseen = append(f.Unseen, "the processes of other users, firewall rules and eBPF programs: run as root, e.g. with sudo")
	}
	inside, err := h.Inspect("")
	if err != nil {
		return f, fmt.Errorf("look at the host: %w", err)
	}
	f.Links, f.Routes = inside.Links, inside.Routes
	for _, l := range inside.Listeners {
		f.Listeners = append(f.Listeners, process(l))
	}
	f.Settings = settings(h, f.Links)
	f.NoRoute4, f.NoRoute6 = !routed(h, distant4), !routed(h, distant6)
	f.LocalhostV6 = localhostV6()
	if os.Geteuid() == 0 {
		var unread []string
		if f.Rules, unread, err = h.Ruleset(); err != nil {
			unread = append(unread, err.Error())
		}
		f.Unseen = append(f.Unseen, unread...)
		if f.EBPFMappings, f.Grants, err = h.EBPFMappings(); err != nil {
			f.Unseen = append(f.Unseen, err.Error())
		}
		f.services(h)
	}
	f.containers(ctx, find)
	return f, nil
}

// distant4 and distant6 are addresses for examples (RFC 5737, RFC 3849), to which
// only a default route leads.
var distant4, distant6 = netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:ffff::1")

// routed reports whether the host has a route to an address, in whichever table.
func routed(h *kernel.Host, to netip.Addr) bool {
	_, err := h.RouteTo(kernel.RouteQuery{To: to})
	var none *kernel.ErrNoRoute
	return !errors.As(err, &none)
}

// services reads the virtual services, and asks for the ways to their real
// servers.
func (f *Facts) services(h *kernel.Host) {
	var err error
	if f.Services, err = h.InstalledServices(); err != nil {
		f.Unseen = append(f.Unseen, err.Error())
	}
	asked := map[netip.Addr]bool{}
	for _, s := range f.Services {
		for _, r := range s.Backends.List() {
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

// containers asks the engines; none at all is no matter.
func (f *Facts) containers(ctx context.Context, find sandbox.Finder) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	f.Containers, err = find.Containers(ctx)
	f.Engine = err == nil
	if err != nil && !errors.Is(err, sandbox.ErrNoEngine) {
		f.Unseen = append(f.Unseen, "containers: "+err.Error())
	}
}

// localhostV6 reads it from hosts(5).
func localhostV6() bool {
	text, _ := os.ReadFile("/etc/hosts") // without it nothing is said of localhost
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if names := strings.Fields(line); len(names) > 1 && names[0] == "::1" && slices.Contains(names[1:], "localhost") {
			return true
		}
	}
	return false
}
