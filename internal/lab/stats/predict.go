package stats

import (
	"math"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
)

// FewestToPredict is the smallest number of observations from which [Predict] computes an
// interval.
const FewestToPredict = 3

// predictionLevel is the share of further observations outside the interval of [Predict]. It
// is smaller than [Alpha], because a history shows many ratios side by side.
const predictionLevel = 0.01

// Predict returns the mean of earlier observations and the interval that contains the next
// one with a probability of 99 %, if they are normal with the same mean and variance: mean ±
// t·s·√(1+1/n) (Hahn and Meeker, "Statistical Intervals", 1991). Observations
// that are all greater than zero are compared on the logarithmic scale. For fewer than
// [FewestToPredict], the interval is infinite.
func Predict(earlier []float64) (mid, low, high float64) {
	if len(earlier) < FewestToPredict {
		return mean(earlier), math.Inf(-1), math.Inf(1)
	}
	to, from := func(x float64) float64 { return x }, func(x float64) float64 { return x }
	if slices.Min(earlier) > 0 {
		to, from = math.Log, math.Exp
	}
	xs := make([]float64, len(earlier))
	for i, x := range earlier {
		xs[i] = to(x)
	}
	n := float64(len(xs))
	m, se := meanError(xs)
	t := moremath.InvCDF(moremath.TDist{V: n - 1})(1 - predictionLevel/2)
	half := t * se * math.Sqrt(n) * math.Sqrt(1+1/n)
	return from(m), from(m - half), from(m + half)
}
