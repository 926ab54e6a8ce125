package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// Costlier are the virtual services whose plane is named and is not ebpf.
func (h Host) Costlier() []model.VirtualService {
	var all []model.VirtualService
	for _, s := range h.Balanced {
		if s.Problem == "" && s.Plane != "" && s.Plane != model.PlaneAuto && s.Plane != model.PlaneEBPF {
			all = append(all, s.VirtualService)
		}
	}
	return all
}

// servicePlane reports those that ebpf could hold as well.
func servicePlane(h Host) []Finding {
	if h.Kernel == nil {
		return nil
	}
	facts := *h.Kernel
	facts.Own = map[netip.Addr]bool{}
	for _, l := range h.Links {
		for _, p := range l.Addresses {
			facts.Own[p.Addr()] = true
		}
	}
	var names []string
	for _, v := range h.Costlier() {
		v.Plane = model.PlaneAuto
		if p, err := paths.ChoosePlane(facts, v); err == nil && p.Name() == model.PlaneEBPF {
			names = append(names, v.Name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil
	}
	return []Finding{{Severity: Note,
		Seen: fmt.Sprintf("services %s name a plane that is not ebpf, and ebpf could hold them: %s", count(len(names), "service"), list(names)),
		Why:  "ebpf leads packets past the host's bridge, netfilter and connection tracking, and costs less for each; it also goes past the host's firewall",
		Cost: &nftServiceCost,
		Fix:  fmt.Sprintf("fairlead service set %s --plane auto, unless the firewall shall see them; open connections do not move with it", escape.Shell(names[0]))}}
}
