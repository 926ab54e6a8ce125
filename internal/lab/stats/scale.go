package stats

import (
	"fmt"
	"math"

	"fairlead/internal/lab/result"
)

const (
	// mostLoss replaces a loss of all packets, whose ratio would be infinite.
	mostLoss = 1 - 1e-6
	// leastIdle is the idle share that the ticks of /proc/stat can still resolve.
	leastIdle = 0.01
)

// logOf returns the logarithm of a run's figure, from which ratios are computed; ok is
// false if the run is absent, is invalid or lacks the figure.
//
// Rates, times and costs are used unchanged. One that is zero or negative has no
// logarithm and counts as missing, because a run that transferred nothing does not
// measure a cost. Two shares are special:
//
//   - Loss is zero on a good path, and 0/0 is undefined. So the number of packets sent
//     per packet that arrives is compared, 1/(1-loss): equal losses give the ratio 1,
//     and 2 means that every packet has to be sent twice as often.
//   - Idle shares below one per cent count as one per cent. A path with such a share has
//     no ratio ([family.resolved]).
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

// Comparable returns a case's figures in the valid rounds, on a scale on which ratios
// are meaningful: unchanged, except for the two shares that [logOf] converts.
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

// unresolvedIdle is the reason why idle shares have no ratio.
var unresolvedIdle = fmt.Sprintf("less than %.0f %% of the CPU time was idle in a round, which the kernel's clock "+
	"does not resolve", 100*leastIdle)

// resolved reports whether the figures of a path can be compared: the clock resolves
// its idle share in every valid round.
func (f family) resolved(path string) bool {
	if f.metric != result.IdleShare {
		return true
	}
	for _, r := range f.all() {
		if r.Path == path && len(r.Invalid) == 0 && has(r, f.metric) && r.Metrics[f.metric] < leastIdle {
			return false
		}
	}
	return true
}

// resolves reports whether a path can be compared with the baseline.
func (f family) resolves(path string) bool { return f.resolved(f.baseline) && f.resolved(path) }
