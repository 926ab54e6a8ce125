package stats

import (
	"math"

	"fairlead/internal/lab/result"
)

const (
	// mostLoss stands for a loss of everything, whose ratio would be infinite.
	mostLoss = 1 - 1e-6
	// leastIdle is where idle time vanishes in the ticks of /proc/stat.
	leastIdle = 0.01
)

// logOf gives a run's figure on the logarithmic scale on which ratios are
// taken; ok is false when the run is absent, invalid or lacks the figure.
//
// Rates, times and costs are taken as they are; one that is zero or negative
// has no logarithm and counts as missing, because a run that moved nothing is
// no measurement of cost. Two shares need care:
//
//   - loss is zero on a good path, and 0/0 says nothing. It is compared as
//     packets sent for each packet that arrives, 1/(1-loss): equal losses
//     give 1, and 2 means that every packet has to be sent twice as often.
//   - idle shares below one per cent are compared as one per cent.
func logOf(r *result.Run, m result.Metric) (float64, bool) {
	if r == nil || len(r.Invalid) > 0 || !has(r, m) {
		return 0, false
	}
	x := r.Metrics[m]
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, false
	}
	switch m {
	case result.Loss:
		return -math.Log1p(-min(x, mostLoss)), x >= 0
	case result.IdleShare:
		return math.Log(max(x, leastIdle)), x >= 0
	}
	return math.Log(x), x > 0
}

// Comparable lists a case's figures over the valid rounds, on a scale on
// which ratios have a meaning: as they are, but for the two shares that
// [logOf] treats apart.
func Comparable(runs []result.Run, c result.Case, m result.Metric) []float64 {
	var all []float64
	for i := range runs {
		if runs[i].Case != c {
			continue
		}
		if x, ok := logOf(&runs[i], m); ok {
			all = append(all, math.Exp(x))
		}
	}
	return all
}
