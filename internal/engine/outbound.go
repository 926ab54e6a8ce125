package engine

import (
	"net/netip"

	"fairlead/internal/driver"
	"fairlead/internal/kernel/rules"
)

// OutboundPath returns the path of what the endpoints of a bridge network send to hosts
// outside, without the uplinks.
func OutboundPath(network string, subnet netip.Prefix, endpoints []string) rules.Path {
	path := rules.Path{Senders: subnet, Router: driver.BridgeLink(network)}
	for _, name := range endpoints {
		path.Ports = append(path.Ports, driver.VethLink(name))
	}
	return path
}
