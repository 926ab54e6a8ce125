package engine

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// staleAnswers are the flows of services in nftables that a change leaves stale:
// those to a real server that is down or taken away, or by a frontend that is,
// and UDP flows to a new frontend that go elsewhere.
type staleAnswers struct {
	gone map[answer]bool
	// fresh are new frontends.
	fresh map[frontend]bool
	// now are those that are there after the change.
	now map[answer]bool
}

type frontend struct {
	proto model.Proto
	at    netip.AddrPort
}

// answer is a frontend with a real server.
type answer struct {
	frontend
	by netip.AddrPort
}

func newStaleAnswers() staleAnswers {
	return staleAnswers{gone: map[answer]bool{}, fresh: map[frontend]bool{}, now: map[answer]bool{}}
}

func (s staleAnswers) empty() bool { return len(s.gone) == 0 && len(s.fresh) == 0 }

// note takes the answers that a step takes away or adds.
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

// broken are the TCP connections whose real servers are gone.
func (s staleAnswers) broken(flushed []kernel.Flow) []kernel.Flow {
	return slices.DeleteFunc(flushed, func(f kernel.Flow) bool {
		return !f.Open || !s.gone[answer{frontend{f.Proto, f.Host}, f.Target}]
	})
}

func (s staleAnswers) match(f kernel.Flow) bool {
	a := answer{frontend{f.Proto, f.Host}, f.Target}
	return (s.gone[a] || s.fresh[a.frontend]) && !s.now[a]
}
