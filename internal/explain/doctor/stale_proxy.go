package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/sandbox"
)

// staleProxy reports docker-proxies that lead to no container. Without an engine
// nobody knows which there are: it may just be restarting.
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
			Seen: fmt.Sprintf("docker-proxy (pid %d) holds port %d/%s for %s, which no running container has", l.Process.PID, p.Host.Port(), p.Proto, p.To.Addr()),
			Why:  "the port cannot be published again (\"port is already allocated\"), and whoever dials it waits",
			Fix:  fmt.Sprintf("kill %d", l.Process.PID)})
	}
	return all
}

func has(c sandbox.Listed, a netip.Addr) bool {
	return slices.ContainsFunc(c.Networks, func(n sandbox.OnNetwork) bool { return slices.Contains(n.Addresses, a) })
}
