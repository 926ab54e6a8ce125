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
	// Noise is the noise floor that [Floor] computes from the interval.
	Noise  float64
	Rounds int

	estimate estimate
}

// shift returns how far the baseline at the time of a run between the halves may be
// from the middle of the two halves, on the logarithmic scale: half of their
// difference. At that time the baseline is between the halves, whether the first run
// of each round is slow, the last one is slow, or the machine drifts.
func (a AA) shift() float64 {
	if a.Rounds == 0 {
		return 0
	}
	return math.Abs(math.Log(a.Ratio)) / 2
}

// floor compares the halves of the family's baseline.
func (f family) floor(seed uint64) AA {
	a := AA{Case: f.kase(f.baseline), Metric: f.metric, P: 1, Rounds: len(f.base.logs)}
	if a.Rounds == 0 {
		return a
	}
	e := f.estimate(f.base, seed)
	a.Ratio, a.Low, a.High, a.estimate = math.Exp(e.mean), math.Exp(e.low), math.Exp(e.high), e
	a.P = signedRank(f.base.tested())
	a.Noise = Floor(a.Low, a.High)
	return a
}

// Floor returns the noise floor of a path's ratio, as a distance from one
// (0.016 = 1.6 %), from the interval of half 2 over half 1:
//
//	floor = exp(√(3/4) · max(|log low|, |log high|)) - 1
//
// The farther end of the interval is used, so a shift between the halves widens the
// floor as scatter does. The factor corrects for the number of runs. If a single run
// scatters by s on the logarithmic scale, half 2 over half 1 scatters by √2·s. But a
// path is compared with the mean of two halves and scatters by √(1+1/2)·s: the ratio
// of these is √(3/4). If a drift moves half 2 by m against half 1, a run between them
// differs by at most m/2 from their mean, which the factor covers as well.
func Floor(low, high float64) float64 {
	far := max(math.Abs(math.Log(low)), math.Abs(math.Log(high)))
	return math.Expm1(math.Sqrt(0.75) * far)
}
