package engine

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/kernel/conntrack"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// staleAnswers selects the conntrack entries of nftables services that a change
// makes stale: flows to a real server that is down or removed, flows of a removed
// frontend, and UDP flows to a new frontend that have another target.
type staleAnswers struct {
	// gone are the answers that the change removes.
	gone map[answer]bool
	// fresh are the new UDP frontends.
	fresh map[frontend]bool
	// now are the answers of the changed services after the change.
	now map[answer]bool
}

// frontend is a protocol, address and port at which a service accepts flows.
type frontend struct {
	proto model.Proto
	at    netip.AddrPort
}

// answer is a frontend and a real server that answers its flows.
type answer struct {
	frontend
	by netip.AddrPort
}

func newStaleAnswers() staleAnswers {
	return staleAnswers{gone: map[answer]bool{}, fresh: map[frontend]bool{}, now: map[answer]bool{}}
}

func (s staleAnswers) empty() bool { return len(s.gone) == 0 && len(s.fresh) == 0 }

// note records the answers that a step removes or adds.
func (s staleAnswers) note(op plan.Op) {
	is, service := op.Object.(plan.NFTService)
	if !service {
		return
	}
	old, _ := op.Old.(plan.NFTService)
	if op.Del {
		is, old = plan.NFTService{}, is
	}
	answers, before := map[answer]bool{}, map[frontend]bool{}
	for _, e := range is.Entries() {
		if a := (answer{frontend{is.Proto, e.At}, e.Real}); e.Map == plan.MapSourceNAT {
			answers[a] = true
		}
	}
	for _, e := range old.Entries() {
		a := answer{frontend{old.Proto, e.At}, e.Real}
		if before[a.frontend] = true; e.Map == plan.MapSourceNAT && !answers[a] {
			s.gone[a] = true
		}
	}
	for _, e := range is.Entries() {
		if f := (frontend{is.Proto, e.At}); is.Proto == model.UDP && !before[f] {
			s.fresh[f] = true
		}
	}
	maps.Copy(s.now, answers)
}

// broken returns the open flows among flushed whose answers are gone. It modifies
// flushed.
func (s staleAnswers) broken(flushed []conntrack.Flow) []conntrack.Flow {
	return slices.DeleteFunc(flushed, func(f conntrack.Flow) bool {
		return !f.Open || !s.gone[answer{frontend{f.Proto, f.Host}, f.Target}]
	})
}

// match reports whether the change makes the conntrack entry stale.
func (s staleAnswers) match(f conntrack.Flow) bool {
	a := answer{frontend{f.Proto, f.Host}, f.Target}
	return (s.gone[a] || s.fresh[a.frontend]) && !s.now[a]
}
