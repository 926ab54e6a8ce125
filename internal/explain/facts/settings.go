package facts

import (
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/plan"
)

// The sysctls that checks read.
const (
	BridgeFilter4  = plan.SysctlBridgeFilter4
	BridgeFilter6  = plan.SysctlBridgeFilter6
	Forward4       = "net.ipv4.ip_forward"
	Forward6       = "net.ipv6.conf.all.forwarding"
	LocalPorts     = "net.ipv4.ip_local_port_range"
	ReservedPorts  = "net.ipv4.ip_local_reserved_ports"
	ConntrackCount = "net.netfilter.nf_conntrack_count"
	ConntrackMax   = "net.netfilter.nf_conntrack_max"
)

// RouteLocalnet returns the sysctl that lets packets for 127.0.0.0/8 in through a
// link; "all" is for all links.
func RouteLocalnet(link string) string { return "net.ipv4.conf." + link + ".route_localnet" }

// StrictRoutes returns the sysctl for reverse path filtering on a link; "all" is
// for all links.
func StrictRoutes(link string) string { return "net.ipv4.conf." + link + ".rp_filter" }

// settings reads the sysctls. It skips those that the kernel lacks, or whose link
// no longer exists.
func settings(h *kernel.Host, links []inspect.InsideLink) map[string]string {
	names := []string{BridgeFilter4, BridgeFilter6, Forward4, Forward6, LocalPorts, ReservedPorts, ConntrackCount,
		ConntrackMax,
		RouteLocalnet("all"), StrictRoutes("all")}
	for _, l := range links {
		names = append(names, RouteLocalnet(l.Name), StrictRoutes(l.Name))
	}
	found := map[string]string{}
	for _, name := range names {
		if value, err := h.Net().ReadSysctl(plan.Sysctl{Name: name}); err == nil {
			found[name] = value
		}
	}
	return found
}
