package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/kernel/inspect"
	"fairlead/internal/model"
)

// noDefaultRoute reports address families in which the host has addresses, but
// no route to distant hosts. It ignores Fairlead's links, whose addresses are
// for sandboxes.
func noDefaultRoute(h Host) []Finding {
	var missing, fix []string
	for _, v := range []struct {
		name, command string
		v4, none      bool
	}{{"IPv4", "ip route", true, h.NoRoute4}, {"IPv6", "ip -6 route", false, h.NoRoute6}} {
		i := slices.IndexFunc(h.Links, func(l inspect.InsideLink) bool {
			return l.Owner == "" && l.Name != model.Loopback && hasPublic(l, v.v4)
		})
		if v.none && i >= 0 && !h.hasDefault(v.v4) {
			missing, fix = append(missing, v.name), append(fix, v.command+" add default via GATEWAY")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []Finding{{Severity: Warning,
		Seen: fmt.Sprintf("the host has no default route for %s", strings.Join(missing, " and ")),
		Why: "the host and its containers reach only the networks on the host's own links: connections to other networks fail " +
			"with \"network is unreachable\", and clients there get no answer",
		Fix: strings.Join(fix, " && ") + ", or let the host's DHCP client or network configuration set it"}}
}

// hasPublic reports whether a link has an address of the family that needs a
// default route. Unique local addresses of IPv6 do not.
func hasPublic(l inspect.InsideLink, v4 bool) bool {
	return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool {
		return p.Addr().Is4() == v4 && p.Addr().IsGlobalUnicast() && (v4 || !p.Addr().IsPrivate())
	})
}

// hasDefault reports whether the main table has a default route via a link.
func (h Host) hasDefault(v4 bool) bool {
	return slices.ContainsFunc(h.Routes, func(r inspect.InsideRoute) bool {
		return r.To.Bits() == 0 && r.To.Addr().Is4() == v4 && r.Link != ""
	})
}
