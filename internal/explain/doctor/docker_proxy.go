package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/explain/ports"
)

// dockerProxy reports ports that Docker's user-space proxy serves.
func dockerProxy(h Host) []Finding {
	served := h.portsThat(func(p ports.Port) bool { return slices.Contains(p.Modes, ports.DockerProxy) })
	if len(served) == 0 {
		return nil
	}
	return []Finding{{Severity: Note,
		Seen: fmt.Sprintf("docker-proxy serves %s: %s", count(len(served), "port"), names(served)),
		Why: "docker-proxy serves clients of 127.0.0.1, of ::1 and, if the container has no IPv6, of the host's IPv6 addresses. " +
			"There is one process per port, and the container sees the gateway's address instead of the client's",
		Cost: &dockerProxyCost,
		Fix: `set "userland-proxy": false in /etc/docker/daemon.json and restart dockerd (the ports then do not answer on ::1); ` +
			`or publish with Fairlead: fairlead publish … --via ebpf`}}
}
