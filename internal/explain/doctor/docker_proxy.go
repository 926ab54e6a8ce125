package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/explain/ports"
)

// dockerProxy reports ports that Docker's user-space proxy serves.
func dockerProxy(h Host) []Finding {
	var served []ports.Port
	for _, p := range h.Ports {
		if slices.Contains(p.Modes, ports.DockerProxy) {
			served = append(served, p)
		}
	}
	if len(served) == 0 {
		return nil
	}
	return []Finding{{Severity: Note,
		Seen: fmt.Sprintf("docker-proxy serves %s: %s", count(len(served), "port"), names(served)),
		Why:  "whoever dials 127.0.0.1, ::1 or an IPv6 address of the host without IPv6 in the container goes through it, one process a port, and the container sees the gateway's address instead of the client's",
		Cost: &dockerProxyCost,
		Fix:  `set "userland-proxy": false in /etc/docker/daemon.json and restart dockerd (::1 then leads nowhere), or publish by fairlead: fairlead publish … --via ebpf`}}
}
