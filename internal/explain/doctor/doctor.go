// Package doctor says what is wrong or slow on a host: why it matters, what it
// costs where the laboratory has measured that, and what mends it. It is pure:
// each check is a function from facts to findings, in a file of its own, and
// nothing is changed or asked.
package doctor

import (
	"cmp"
	"slices"

	"fairlead/internal/daemon"
	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel"
	"fairlead/internal/plan"
)

// Severity says how bad a finding is.
type Severity string

// The severities: a problem breaks or endangers something, a warning will or may,
// a note costs something.
const (
	Problem Severity = "problem"
	Warning Severity = "warning"
	Note    Severity = "note"
)

var order = []Severity{Problem, Warning, Note}

// Finding is something that is wrong.
type Finding struct {
	// Check is the name of the check that has found it.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Seen is what is so on this host, and Why what follows from it.
	Seen string `json:"seen"`
	Why  string `json:"why"`
	// Cost is what the laboratory has measured, if it has.
	Cost *Figure `json:"cost,omitempty"`
	// Fix is a command where one is enough, and otherwise what to do.
	Fix string `json:"fix"`
}

// Host is what the checks look at.
type Host struct {
	facts.Facts
	Ports []ports.Port
	// Attachments are the daemon's; Daemon says that one was asked.
	Attachments []daemon.View
	Daemon      bool
	// Balanced are the daemon's virtual services.
	Balanced []daemon.ServiceView
	// Kernel is what the kernel can do, where that was asked: for a service whose
	// plane is named, and is not the first.
	Kernel *plan.Facts
	// Claims are the answers of other hosts for addresses (Host.Asked).
	Claims []kernel.Claim
	// Events are the daemon's last.
	Events []daemon.Event
}

// Check looks for one thing.
type Check struct {
	Name string
	Run  func(Host) []Finding
}

// Checks are all checks.
func Checks() []Check {
	return []Check{
		{"attachments", attachments},
		{"services", services},
		{"service-address", serviceAddress},
		{"address-conflict", addressConflict},
		{"gateway-conflict", gatewayConflict},
		{"no-default-route", noDefaultRoute},
		{"icmp-blocked", icmpBlocked},
		{"service-no-route", serviceRoutes},
		{"service-dropped", serviceDropped},
		{"service-plane", servicePlane},
		{"daemon", keeper},
		{"drift", drift},
		{"ip-forward", forwarding},
		{"not-forwarded", notForwarded},
		{"conntrack", conntrack},
		{"route-localnet", routeLocalnet},
		{"exposed", exposed},
		{"firewall-bypassed", bypassed},
		{"two-firewalls", twoFirewalls},
		{"mtu", mtu},
		{"rp-filter", returnPath},
		{"localhost-v6", localhost},
		{"local-ports", localPorts},
		{"stale-docker-proxy", staleProxy},
		{"docker-proxy", dockerProxy},
		{"docker-proxy-memory", proxyMemory},
		{"bridge-filter", bridgeFilter},
	}
}

// Examine makes all checks; the worst findings come first.
func Examine(h Host) []Finding {
	var all []Finding
	for _, c := range Checks() {
		for _, f := range c.Run(h) {
			f.Check = c.Name
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
	return all
}
