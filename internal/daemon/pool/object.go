package pool

import (
	"cmp"
	"net/netip"
	"slices"

	"fairlead/internal/model"
)

// ObjectOf names the real server of a TCP connection to a frontend, or its service if no
// pool has the real server. The first pool that knows it decides.
func ObjectOf(frontend, server netip.AddrPort, pools []map[string]*Pool) string {
	name := ""
	for _, all := range pools {
		for _, p := range all {
			if !hasFrontend(p.Spec, frontend) {
				continue
			}
			name = "service " + p.Spec.Name
			if m := cmp.Or(p.Member(server), p.Member(netip.AddrPortFrom(server.Addr(), 0))); m != nil {
				return name + " real " + m.Text()
			}
		}
	}
	return cmp.Or(name, "service at "+frontend.String())
}

// hasFrontend reports whether at is an address and port of the TCP service.
func hasFrontend(v model.VirtualService, at netip.AddrPort) bool {
	return v.Proto == model.TCP && slices.Contains(v.Addresses, at.Addr()) &&
		slices.ContainsFunc(v.Ports, model.Port(at.Port()).Overlaps)
}
