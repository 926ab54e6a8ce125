package stats

import (
	"math"

	"fairlead/internal/lab/result"
)

// AA is the A/A comparison of one family: the baseline's second half over
// its first.
type AA struct {
	result.Case
	Metric result.Metric
	// Ratio is the geometric mean of half 2 over half 1, Low and High its
	// bootstrap interval, P its exact signed-rank p-value.
	Ratio, Low, High, P float64
	// Noise is the floor drawn from the interval; see [Floor].
	Noise  float64
	Rounds int
}

// Within says whether the two halves differ by no more than the floor says.
// Pure noise keeps within it; a drift far larger than the noise, such as a
// baseline that is always cold in its first half, does not, and then the
// session deserves no trust.
func (a AA) Within() bool {
	return a.Rounds > 1 && math.Abs(math.Log(a.Ratio)) <= math.Log1p(a.Noise)
}

// shift is how far the middle of the two halves may be from the baseline at the
// moment of a run between them, on the logarithmic scale: half of what the
// second half differs by from the first. Whether the first run of each round is
// slow, or the last, or the machine drifts, the baseline at that moment lies
// between the halves.
func (a AA) shift() float64 {
	if a.Rounds == 0 {
		return 0
	}
	return math.Abs(math.Log(a.Ratio)) / 2
}

// Halves gives the A/A comparison of every client, workload, tool and metric.
func Halves(runs []result.Run, baseline string, seed uint64) []AA {
	var all []AA
	for _, g := range groups(runs, baseline) {
		for _, m := range g.metrics() {
			if f := g.family(m); f.hasBaseline {
				all = append(all, f.floor(seed))
			}
		}
	}
	return all
}

// floor compares the halves of the family's baseline.
func (f family) floor(seed uint64) AA {
	a := AA{Case: f.kase(f.baseline), Metric: f.metric, P: 1, Rounds: len(f.base.logs)}
	if a.Rounds == 0 {
		return a
	}
	lo, hi := meanInterval(f.base.logs, f.seed(seed, f.baseline))
	a.Ratio, a.Low, a.High = math.Exp(mean(f.base.logs)), math.Exp(lo), math.Exp(hi)
	a.P = signedRank(f.base.logs)
	a.Noise = Floor(a.Low, a.High)
	return a
}

// Floor gives the noise floor of a path's ratio, as a distance from one
// (0.016 = 1.6 %), from the interval of half 2 over half 1:
//
//	floor = exp(√(3/4) · max(|log low|, |log high|)) - 1
//
// The farther end of the interval is used, so a shift between the halves widens
// the floor as scatter does. The factor corrects for the number of runs. If a
// single run scatters by s on the logarithmic scale, half 2 over half 1 scatters
// by √2·s, but a path is compared with the mean of two halves and scatters by
// √(1+1/2)·s: the ratio of these is √(3/4). A drift that moves
// half 2 by m against half 1 moves a run between them by at most m/2 from
// their mean, which the factor covers as well.
func Floor(low, high float64) float64 {
	far := max(math.Abs(math.Log(low)), math.Abs(math.Log(high)))
	return math.Expm1(math.Sqrt(0.75) * far)
}
