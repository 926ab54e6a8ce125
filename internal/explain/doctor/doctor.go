// Package doctor finds what is wrong or slow on a host. Each finding says what
// was seen, why it matters, what fixes it and, if the laboratory has measured
// it, what it costs. The package is pure: each check is a function from facts
// to findings, in its own file. No check changes or asks the host.
package doctor

import (
	"cmp"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/plan"
)

// Severity is how bad a finding is.
type Severity string

// The severities: a problem breaks or endangers something, a warning may do so,
// and a note costs something.
const (
	Problem Severity = "problem"
	Warning Severity = "warning"
	Note    Severity = "note"
)

var order = []Severity{Problem, Warning, Note}

// Finding is one thing that is wrong or slow.
type Finding struct {
	// Check is the name of the check that found it.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Seen is the state of this host, and Why is the consequence.
	Seen string `json:"seen"`
	Why  string `json:"why"`
	// Cost is what the laboratory has measured; nil if it has not measured it.
	Cost *Figure `json:"cost,omitempty"`
	// Fix is a command, or a sentence if no command is enough.
	Fix string `json:"fix"`
}

// Host is the input of the checks.
type Host struct {
	facts.Facts
	Ports []ports.Port
	// Attachments are the daemon's. Daemon is true if a daemon was asked.
	Attachments []api.View
	Daemon      bool
	// Unavailable has the reasons why networks cannot exist on this host at present, by name.
	Unavailable map[string]string
	// Balanced are the daemon's virtual services.
	Balanced []api.ServiceView
	// Kernel is what the kernel supports. It is nil unless Host.Costlier returns
	// services, which are the only ones that need it.
	Kernel *plan.Facts
	// Claims are the answers of other hosts for the addresses of Host.Asked.
	Claims []inspect.Claim
	// Events are the daemon's latest events.
	Events []api.Event
	// Cluster is nil if the host belongs to no cluster. Now is the time to which it is compared.
	Cluster *api.ClusterStatus
	Now     time.Time
}

// Check finds one kind of problem.
type Check struct {
	Name string
	Run  func(Host) []Finding
}

// Checks returns all checks.
func Checks() []Check {
	return []Check{
		{"attachments", attachments},
		{"network", unavailableNetworks},
		{"services", services},
		{"cluster", clusterNode},
		{"virtual-address", virtualAddress},
		{"service-address", serviceAddress},
		{"address-conflict", addressConflict},
		{"gateway-conflict", gatewayConflict},
		{"no-default-route", noDefaultRoute},
		{"icmp-blocked", icmpBlocked},
		{"service-no-route", serviceRoutes},
		{"service-dropped", serviceDropped},
		{"service-plane", servicePlane},
		{"daemon", noDaemon},
		{"ended-sandbox", ended},
		{"drift", drift},
		{"ip-forward", forwarding},
		{"not-forwarded", notForwarded},
		{"peers-dropped", peersDropped},
		{"conntrack", conntrack},
		{"neighbour-table", neighbourTable},
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

// Examine runs all checks. The worst findings come first.
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
