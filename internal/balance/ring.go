package balance

import (
	"fairlead/internal/balance/maglev"
	"fairlead/internal/balance/wrr"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Sizes are the sizes of a data plane's rings.
type Sizes struct {
	// Buckets is the number of buckets of a Maglev table. It must be prime.
	Buckets int
	// Turns is the greatest number of turns of weighted round robin.
	Turns int
}

// Ring returns the order in which backends get new flows, as their indexes: the Maglev
// table for schedulers that hash, each backend as often as its weight for weighted round
// robin, and each backend once for all others. Draining backends get no new flows.
func Ring(s model.Scheduler, backends []plan.Backend, size Sizes) []uint16 {
	weights := weightsOf(backends)
	switch t := s.Traits(); {
	case t.Hashes != model.NoKey:
		owners := make([]maglev.Backend, len(backends))
		for i, b := range backends {
			owners[i] = maglev.Backend{Name: b.At.String(), Weight: uint32(weights[i])}
		}
		return maglev.Table(owners, size.Buckets)
	case t.Weighted && !t.CountsFlows:
		return wrr.Ring(weights, size.Turns)
	}
	var ring []uint16
	for i, w := range weights {
		if w > 0 {
			ring = append(ring, uint16(i))
		}
	}
	return ring
}

// weightsOf returns the weights for new flows.
func weightsOf(backends []plan.Backend) []int {
	weights := make([]int, len(backends))
	for i, b := range backends {
		if !b.Draining {
			weights[i] = int(b.Weight)
		}
	}
	return weights
}
