package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/sandbox"
)

// staleProxy reports docker-proxies without a container. It reports nothing if
// no engine answers, because the containers are then unknown: the engine may
// just be restarting.
func staleProxy(h Host) []Finding {
	if !h.Engine {
		return nil
	}
	var all []Finding
	for _, l := range h.Listeners {
		p, ok := l.DockerProxy()
		if !ok || slices.ContainsFunc(h.Containers, func(c sandbox.Listed) bool { return has(c, p.To.Addr()) }) {
			continue
		}
		all = append(all, Finding{Severity: Problem,
			Seen: fmt.Sprintf("docker-proxy (pid %d) uses port %d/%s for %s, which is not an address of any running container",
				l.Process.PID, p.Host.Port(), p.Proto, p.To.Addr()),
			Why: "the port cannot be published again (\"port is already allocated\"), and its clients wait until they time out",
			Fix: fmt.Sprintf("kill %d", l.Process.PID)})
	}
	return all
}

func has(c sandbox.Listed, a netip.Addr) bool {
	return slices.ContainsFunc(c.Networks, func(n sandbox.OnNetwork) bool { return slices.Contains(n.Addresses, a) })
}
