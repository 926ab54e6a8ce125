package doctor

import (
	"fmt"
)

// muchMemory is the memory that all docker-proxies together may use before it is
// reported, in bytes.
const muchMemory = 64 << 20

// proxyMemory reports docker-proxies that together use much memory.
func proxyMemory(h Host) []Finding {
	counted := map[int]bool{}
	total := int64(0)
	for _, l := range h.Listeners {
		if _, ok := l.DockerProxy(); ok {
			if !counted[l.Process.PID] {
				counted[l.Process.PID] = true
				total += l.Memory
			}
		}
	}
	if total < muchMemory {
		return nil
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("%d docker-proxy processes use %d MiB of memory (resident; shared pages are counted for each process)",
			len(counted), total>>20),
		Why: "there is one process for each published port, address family and protocol",
		Fix: `set "userland-proxy": false in /etc/docker/daemon.json and restart dockerd; ` +
			`or publish a range with Fairlead, which needs one map element for it`}}
}
