package engine

import (
	"net/netip"
	"slices"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// cutFlows returns the open TCP connections of IPVS that the steps will end: those
// to real servers that are down or removed, and those of removed services. They
// are read before the steps, because the kernel deletes a flow with its real
// server (expire_nodest_conn).
func (e *Engine) cutFlows(s steps) ([]conntrack.Flow, error) {
	gone := map[answer]bool{}
	for _, op := range slices.Concat(s.set, s.unserved) {
		noteIPVS(gone, op)
	}
	if len(gone) == 0 {
		return nil, nil
	}
	return e.cfg.Flows.IPVS().Flows(func(f conntrack.Flow) bool {
		return f.Open && gone[answer{frontend{f.Proto, f.Host}, f.Target}]
	})
}

// noteIPVS adds the answers that a step removes to gone.
func noteIPVS(gone map[answer]bool, op plan.Op) {
	is, service := op.Object.(plan.IPVSService)
	old, _ := op.Old.(plan.IPVSService)
	if op.Del {
		is, old = plan.IPVSService{}, is
	}
	if !service || old.Proto != model.TCP {
		return
	}
	stays := map[netip.AddrPort]bool{}
	for _, r := range is.Reals {
		stays[r.At] = true
	}
	for _, r := range old.Reals {
		if !stays[r.At] {
			gone[answer{frontend{old.Proto, old.At}, r.At}] = true
		}
	}
}

func isIPVS(o plan.Object) bool {
	_, is := o.(plan.IPVSService)
	return is
}
