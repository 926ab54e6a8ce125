package stats

import (
	"math"
	"math/rand/v2"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"
)

// resamples is the number of bootstrap resamples of every interval.
const resamples = 10_000

// fewRounds is the number of observations below which a bootstrap interval cannot
// cover 95 %. The interval never exceeds the range of the observations, and all n of
// them are on the same side of the true value with a probability of 2/2^n. Skewed
// noise moves that limit up from 6 to 8.
const fewRounds = 8

// meanInterval returns the 95 % interval of the mean of xs, computed with the
// bootstrap.
//
// The plain percentile interval is too narrow for the few rounds of a session: it
// divides by n instead of n-1, and uses the normal distribution instead of Student's
// (at 6 rounds it covers about 86 %). So its percentiles are moved outwards by
// exactly these two errors, as in Hesterberg, "What Teachers Should Know about the
// Bootstrap" (2015). Below [fewRounds] this is not enough either, and the result is
// Student's interval.
func meanInterval(xs []float64, seed [2]uint64) (lo, hi float64) {
	if len(xs) == 1 {
		return xs[0], xs[0]
	}
	if len(xs) < fewRounds {
		return studentInterval(xs)
	}
	rng := rand.New(rand.NewPCG(seed[0], seed[1]))
	means, buf := make([]float64, resamples), make([]float64, len(xs))
	for i := range means {
		means[i] = mean(resample(buf, xs, rng))
	}
	slices.Sort(means)
	n := float64(len(xs))
	tail := moremath.StdNormal.CDF(-student(len(xs)) * math.Sqrt(n/(n-1)))
	return quantile(means, tail), quantile(means, 1-tail)
}

// studentInterval is the interval of the mean of normal observations.
func studentInterval(xs []float64) (lo, hi float64) {
	m, se := meanError(xs)
	half := student(len(xs)) * se
	return m - half, m + half
}

// meanError returns the mean of two or more observations and its standard error.
func meanError(xs []float64) (m, se float64) {
	m = mean(xs)
	squares := 0.0
	for _, x := range xs {
		squares += (x - m) * (x - m)
	}
	n := float64(len(xs))
	return m, math.Sqrt(squares / (n - 1) / n)
}

// student returns the quantile 1-Alpha/2 of Student's distribution for n
// observations.
func student(n int) float64 {
	return moremath.InvCDF(moremath.TDist{V: float64(n - 1)})(1 - Alpha/2)
}

// MedianRatio returns median(b)/median(a) of two independent samples with a
// bootstrap 95 % interval. If one of them has a single observation, there is no
// interval, and low and high are the ratio.
func MedianRatio(a, b []float64, seed uint64) (ratio, low, high float64) {
	ratio = Median(b) / Median(a)
	if len(a) < 2 || len(b) < 2 {
		return ratio, ratio, ratio
	}
	rng := rand.New(rand.NewPCG(seed, uint64(len(a))<<32|uint64(len(b))))
	ratios := make([]float64, resamples)
	bufA, bufB := make([]float64, len(a)), make([]float64, len(b))
	for i := range ratios {
		ratios[i] = Median(resample(bufB, b, rng)) / Median(resample(bufA, a, rng))
	}
	slices.Sort(ratios)
	return ratio, quantile(ratios, Alpha/2), quantile(ratios, 1-Alpha/2)
}

// resample fills dst with random draws from src.
func resample(dst, src []float64, rng *rand.Rand) []float64 {
	for i := range dst {
		dst[i] = src[rng.IntN(len(src))]
	}
	return dst
}

// quantile interpolates a quantile of xs, which must be sorted.
func quantile(xs []float64, q float64) float64 {
	at := q * float64(len(xs)-1)
	i := int(at)
	if i+1 >= len(xs) {
		return xs[len(xs)-1]
	}
	return xs[i] + (at-float64(i))*(xs[i+1]-xs[i])
}
