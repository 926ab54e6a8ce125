package doctor

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/escape"
	"fairlead/internal/explain/facts"
)

// returnPath reports strict reverse path filtering on a host with several
// default routes.
func returnPath(h Host) []Finding {
	var out []string
	for _, r := range h.Routes {
		if r.To.Bits() == 0 && r.To.Addr().Is4() && !slices.Contains(out, r.Link) {
			out = append(out, r.Link)
		}
	}
	if len(out) < 2 {
		return nil
	}
	var strict, fix []string
	for _, link := range out {
		value := max(h.Settings[facts.StrictRoutes("all")], h.Settings[facts.StrictRoutes(link)])
		if value == "1" {
			strict = append(strict, link)
			fix = append(fix, escape.Shell(facts.StrictRoutes(link)+"=2"))
		}
	}
	if len(strict) == 0 {
		return nil
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("the host has default routes via %s, and rp_filter is strict (1) on %s", list(out),
			list(strict)),
		Why: "the kernel drops a packet that arrives on one of these links if the route back to its source uses another link. " +
			"No firewall counter shows it; nstat TcpExtIPReversePathFilter does",
		Fix: "sysctl -w " + strings.Join(fix, " ")}}
}
