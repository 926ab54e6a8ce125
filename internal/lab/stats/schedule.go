package stats

import (
	"math/rand/v2"
	"slices"
)

// Turn is one planned run.
type Turn struct {
	Path string
	// Half is 1 or 2 for the baseline's first and second measurement in the
	// round, 0 for other paths.
	Half int
	// Order is the position within the round, from 0.
	Order int
}

// Schedule returns the turns of every round: the baseline, every other path in a new
// random order, the baseline again. The order depends on the seed only: with more
// rounds the earlier ones do not change. It makes no difference whether paths contains
// the baseline.
func Schedule(baseline string, paths []string, rounds int, seed uint64) [][]Turn {
	rng := rand.New(rand.NewPCG(seed, 0))
	others := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == baseline })
	all := make([][]Turn, rounds)
	for i := range all {
		turns := []Turn{{Path: baseline, Half: 1}}
		for _, at := range rng.Perm(len(others)) {
			turns = append(turns, Turn{Path: others[at], Order: len(turns)})
		}
		all[i] = append(turns, Turn{Path: baseline, Half: 2, Order: len(turns)})
	}
	return all
}
