package doctor

import (
	"fmt"
	"slices"
)

// staleProxy reports docker-proxies without a container. It reports nothing if
// no engine answers, because the containers are then unknown: the engine may
// just be restarting. It reports no proxy whose target another network namespace
// has: a container of an engine that was not asked may be there.
func staleProxy(h Host) []Finding {
	if !h.Engine {
		return nil
	}
	var all []Finding
	for _, l := range h.Listeners {
		p, ok := l.DockerProxy()
		if !ok || h.HasContainer(p.To.Addr()) || slices.Contains(h.ProxyTargets, p.To.Addr()) {
			continue
		}
		all = append(all, Finding{Severity: Problem,
			Seen: fmt.Sprintf("docker-proxy (pid %d) uses port %d/%s for %s, which neither a running container nor "+
				"another network namespace of this host has", l.Process.PID, p.Host.Port(), p.Proto, p.To.Addr()),
			Why: "the port cannot be published again (\"port is already allocated\"), and its clients wait until they time out",
			Fix: fmt.Sprintf("kill %d", l.Process.PID)})
	}
	return all
}
