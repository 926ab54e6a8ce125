package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/explain/facts"
	"fairlead/internal/model"
)

// returnPath reports strict reverse path filtering where it drops packets that are expected.
func returnPath(h Host) []Finding { return append(severalUplinks(h), directAnswers(h)...) }

// severalUplinks reports strict reverse path filtering on a host with several
// default routes.
func severalUplinks(h Host) []Finding {
	var out []string
	for _, r := range h.Routes {
		if r.To.Bits() == 0 && r.To.Addr().Is4() && !slices.Contains(out, r.Link) {
			out = append(out, r.Link)
		}
	}
	if len(out) < 2 {
		return nil
	}
	var strict []string
	for _, link := range out {
		if reversePathOf(h, link) == "1" {
			strict = append(strict, link)
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
		Fix: "sysctl -w " + strings.Join(looser(strict), " ")}}
}

// directAnswers reports reverse path filtering that drops what sandboxes answer for a service of the cluster:
// these answers have its address as the source. The host has no route to it via the sandboxes' link, and
// a loose filter needs a route via any link.
func directAnswers(h Host) []Finding {
	var all []Finding
	for _, s := range h.Balanced {
		if s.Origin != model.FromCluster || s.Forward != model.ForwardDirect {
			continue
		}
		strict, filtered := answerLinks(h, s.Servers)
		var fix []string
		if len(strict) > 0 {
			fix = append(fix, "sysctl -w "+strings.Join(looser(strict), " "))
		}
		if len(filtered) > 0 && !routed(h, s.Addresses) {
			fix = append(fix, "ip route add default via GATEWAY")
		}
		if len(fix) == 0 {
			continue
		}
		all = append(all, Finding{Severity: Problem,
			Seen: fmt.Sprintf("rp_filter is set on %s, where real servers of service %s answer with its address",
				list(filtered), s.Name),
			Why: "the kernel drops these answers, so clients that were sent to this host wait until they time out",
			Fix: strings.Join(fix, "; ")})
	}
	return all
}

// answerLinks returns the links of this host's real servers that filter reverse paths strictly, and those that
// filter them at all.
func answerLinks(h Host, servers []api.RealView) (strict, filtered []string) {
	for _, r := range servers {
		link := h.LinkTo(r.Address)
		if r.Endpoint == "" || !r.Address.Is4() || slices.Contains(filtered, link) {
			continue
		}
		switch reversePathOf(h, link) {
		case "1":
			strict = append(strict, link)
			filtered = append(filtered, link)
		case "2":
			filtered = append(filtered, link)
		}
	}
	return strict, filtered
}

// looser returns the settings with which links filter reverse paths loosely.
func looser(links []string) (settings []string) {
	for _, link := range links {
		settings = append(settings, escape.Shell(facts.StrictRoutes(link)+"=2"))
	}
	return settings
}

// routed reports whether the host has a route to each IPv4 address.
func routed(h Host, addresses []netip.Addr) bool {
	return !slices.ContainsFunc(addresses, func(at netip.Addr) bool {
		return at.Is4() && h.LinkTo(at) == ""
	})
}

// reversePathOf returns the value of rp_filter that counts for a link: the higher one of its own and that for
// all links.
func reversePathOf(h Host, link string) string {
	return max(h.Settings[facts.StrictRoutes("all")], h.Settings[facts.StrictRoutes(link)])
}
