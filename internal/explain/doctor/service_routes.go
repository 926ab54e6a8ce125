package doctor

import (
	"fmt"
	"slices"
)

// serviceRoutes reports real servers to which the host has no route.
func serviceRoutes(h Host) []Finding {
	var all []Finding
	for _, s := range h.Services {
		var lost []string
		for _, r := range s.Backends.List() {
			if r.Link == "" && slices.Contains(h.NoRoute, r.At.Addr()) {
				lost = append(lost, r.At.Addr().String())
			}
		}
		if len(lost) > 0 {
			all = append(all, Finding{Severity: Problem,
				Seen: fmt.Sprintf("the host has no route to %s of %s", list(lost), called(s)),
				Why:  "clients that are led there wait until they give up; a check through this host would take such a real server out",
				Fix:  fmt.Sprintf("ip route add %s via GATEWAY, or take it out of the service", lost[0])})
		}
	}
	return all
}
