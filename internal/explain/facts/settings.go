package facts

import (
	"fairlead/internal/kernel"
	"fairlead/internal/plan"
)

// The sysctls that checks look at. Those of links have the link's name in the
// place of the %s.
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

// RouteLocalnet and StrictRoutes are settings of one link; "all" is for every.
func RouteLocalnet(link string) string { return "net.ipv4.conf." + link + ".route_localnet" }

// StrictRoutes is the check that answers would leave by the link.
func StrictRoutes(link string) string { return "net.ipv4.conf." + link + ".rp_filter" }

// settings reads the sysctls. One that the kernel lacks, or that has gone with
// its link, is left out.
func settings(h *kernel.Host, links []kernel.InsideLink) map[string]string {
	names := []string{BridgeFilter4, BridgeFilter6, Forward4, Forward6, LocalPorts, ReservedPorts, ConntrackCount, ConntrackMax,
		RouteLocalnet("all"), StrictRoutes("all")}
	for _, l := range links {
		names = append(names, RouteLocalnet(l.Name), StrictRoutes(l.Name))
	}
	found := map[string]string{}
	for _, name := range names {
		if value, err := h.ReadSysctl(plan.Sysctl{Name: name}); err == nil {
			found[name] = value
		}
	}
	return found
}
