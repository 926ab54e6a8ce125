package doctor

import (
	"fmt"
)

// muchMemory is what docker-proxies may hold together before it is worth a
// word, in bytes.
const muchMemory = 64 << 20

// proxyMemory reports what docker-proxies hold in memory.
func proxyMemory(h Host) []Finding {
	inUse := map[int]int64{}
	total := int64(0)
	for _, l := range h.Listeners {
		if _, ok := l.DockerProxy(); ok {
			if _, again := inUse[l.Process.PID]; !again {
				inUse[l.Process.PID] = l.Memory
				total += l.Memory
			}
		}
	}
	if total < muchMemory {
		return nil
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("%s hold %d MiB of memory (resident, shared pages counted in each)", fmt.Sprint(len(inUse), " processes docker-proxy"), total>>20),
		Why:  "there is one process for each published port, address family and protocol",
		Fix:  `set "userland-proxy": false in /etc/docker/daemon.json and restart dockerd; or publish a range by fairlead, which is one element of a map`}}
}
