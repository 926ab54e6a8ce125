package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/pool"
	"fairlead/internal/kernel/rawtcp"
	"fairlead/internal/model"
)

// reportEnded reports how many connections of clients the last step has reset, per
// real server, or per service if the real server is no longer known. pools are the
// pools before and after the step.
func (s *services) reportEnded(pools ...map[string]*pool.Pool) {
	all := map[string]rawtcp.Ended{}
	for _, e := range s.cfg.Flows.TCP().TakeEnded() {
		object := endedOf(e, pools)
		sum := all[object]
		sum.Connections += e.Connections
		sum.Silent += e.Silent
		all[object] = sum
	}
	for _, object := range slices.Sorted(maps.Keys(all)) {
		s.note(api.Event{Kind: api.ClientsReset, Object: object, Detail: endedText(all[object])})
	}
}

// endedOf names the real server or the service.
func endedOf(e rawtcp.Ended, pools []map[string]*pool.Pool) string {
	name := ""
	for _, all := range pools {
		for _, p := range all {
			if !dialled(p.Spec, e.Frontend) {
				continue
			}
			name = "service " + p.Spec.Name
			if m := cmp.Or(p.Member(e.Real), p.Member(netip.AddrPortFrom(e.Real.Addr(), 0))); m != nil {
				return name + " real " + m.Text()
			}
		}
	}
	return cmp.Or(name, "service at "+e.Frontend.String())
}

// dialled reports whether at is an address and port of the TCP service.
func dialled(v model.VirtualService, at netip.AddrPort) bool {
	return v.Proto == model.TCP && slices.Contains(v.Addresses, at.Addr()) &&
		slices.ContainsFunc(v.Ports, model.Port(at.Port()).Overlaps)
}

func endedText(e rawtcp.Ended) string {
	text := fmt.Sprintf("%d connections of clients were reset", e.Connections)
	if e.Connections == 1 {
		text = "1 connection of a client was reset"
	}
	if e.Silent > 0 {
		text += fmt.Sprintf("; %d of these clients did not answer, and are reset when they send again", e.Silent)
	}
	return text
}
