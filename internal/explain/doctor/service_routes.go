package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// serviceRoutes reports real servers to which the host has no route.
func serviceRoutes(h Host) []Finding {
	var all []Finding
	for _, s := range h.Services {
		var lost, routes []string
		for _, r := range s.Backends {
			if r.Link == "" && slices.Contains(h.NoRoute, r.At.Addr()) {
				lost = append(lost, r.At.Addr().String())
				routes = append(routes, fmt.Sprintf("ip route add %s via GATEWAY", r.At.Addr()))
			}
		}
		if len(lost) > 0 {
			all = append(all, Finding{Severity: Problem,
				Seen: fmt.Sprintf("the host has no route to %s of %s", list(lost), called(s)),
				Why:  "clients that are sent there wait until they time out; a health check would take such a real server out of use",
				Fix:  strings.Join(routes, " && ") + ", or remove the real server from the service"})
		}
	}
	return all
}
