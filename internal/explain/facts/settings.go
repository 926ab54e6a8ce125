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
func RouteLocalnet(link string) string { return plan.LinkSetting("ipv4", link, "route_localnet") }

// StrictRoutes returns the sysctl for reverse path filtering on a link; "all" is
// for all links.
func StrictRoutes(link string) string { return plan.LinkSetting("ipv4", link, "rp_filter") }

// Forwarding returns the sysctl that lets packets of a family that arrive on a link pass on
// to other links.
func Forwarding(link string, v4 bool) string {
	if v4 {
		return plan.LinkSetting("ipv4", link, "forwarding")
	}
	return Forward6
}

// ForceForwarding returns the sysctl that lets IPv6 packets that arrive on a link pass on
// although Forward6 is 0 (Linux 6.17).
func ForceForwarding(link string) string { return plan.LinkSetting("ipv6", link, "force_forwarding") }

// Forwards reports whether packets of a family that arrive on a link pass on to other
// links.
func (f Facts) Forwards(link string, v4 bool) bool {
	return f.Settings[Forwarding(link, v4)] != "0" || !v4 && f.Settings[ForceForwarding(link)] == "1"
}

// settings reads the sysctls. It skips those that the kernel lacks, or whose link
// no longer exists.
func settings(h *kernel.Host, links []inspect.InsideLink) map[string]string {
	names := []string{BridgeFilter4, BridgeFilter6, Forward4, Forward6, LocalPorts, ReservedPorts, ConntrackCount,
		ConntrackMax,
		RouteLocalnet("all"), StrictRoutes("all")}
	for _, l := range links {
		names = append(names, RouteLocalnet(l.Name), StrictRoutes(l.Name), Forwarding(l.Name, true),
			ForceForwarding(l.Name))
	}
	found := map[string]string{}
	for _, name := range names {
		if value, err := h.Net().ReadSysctl(plan.Sysctl{Name: name}); err == nil {
			found[name] = value
		}
	}
	return found
}
