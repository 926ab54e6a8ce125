package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/escape"
	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// Costlier returns the virtual services for which the user chose a data plane
// whose packets pass the rules of the host.
func (h Host) Costlier() []model.VirtualService {
	var all []model.VirtualService
	for _, s := range h.Balanced {
		if s.Problem == "" && s.Plane != "" && s.Plane != model.PlaneAuto && !s.Plane.Traits().AtLinks {
			all = append(all, s.VirtualService)
		}
	}
	return all
}

// servicePlane reports costlier services that the data plane ebpf could run.
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
		if p, err := paths.ChoosePlane(facts, v, nil); err == nil && p.Name().Traits().AtLinks {
			names = append(names, v.Name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil
	}
	return []Finding{{Severity: Note,
		Seen: fmt.Sprintf("the data plane ebpf could run %s for which another one was chosen: %s",
			count(len(names), "service"), list(names)),
		Why: "with ebpf, packets bypass the host's bridge, netfilter and connection tracking, so each packet costs less; " +
			"they also bypass the host's firewall",
		Cost: &nftServiceCost,
		Fix: fmt.Sprintf("fairlead service set %s --plane auto, unless the firewall must filter its packets; open connections stay in the old data plane",
			escape.Shell(names[0]))}}
}
