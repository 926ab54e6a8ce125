// Package stats turns the laboratory's raw runs into figures that can be
// trusted: medians and ratios with intervals, exact p-values and the noise
// floor that the twice-measured baseline shows. It does not measure, print or
// decide which runs are valid.
//
// # Theory of operation
//
// A round holds the baseline twice, first and last, and every path once in
// between. What drifts slowly (temperature, a neighbour on the same machine)
// touches all runs of a round alike, so everything is compared within its
// round, on a logarithmic scale, and only these comparisons are averaged:
//
//	r = log(path) - (log(half 1) + log(half 2)) / 2     one per round
//	d = log(half 2) - log(half 1)                       the A/A null
//
// The ratio of a path is exp(mean r) and its interval is a bootstrap over
// rounds (see meanInterval for few of them), widened by half of what d is on
// average (AA.shift), because the baseline between the halves may be at either
// of them. d is the same statistic for two measurements that differ in
// nothing; see [Floor] for how it becomes the noise floor. A percentile is
// taken within a run, so that one p99 is one observation. Nothing is dropped
// as an outlier: only runs that a gate declared invalid are left out, and
// these are counted.
package stats

import (
	"math"

	"fairlead/internal/lab/result"
)

// Alpha is the level of every test; intervals hold 1-Alpha.
const Alpha = 0.05

// Summarize draws one row per path, client, workload, tool and metric. The
// same runs and seed always give the same rows, in a stable order: by client,
// workload, tool and metric, the baseline before the other paths.
//
// A round counts for a path when the path's own run and both halves of the
// baseline are valid and hold the metric; the other rounds that the path took
// part in are counted as Invalid. A path without any valid round still gets
// its row, with Rounds 0 and no figures. Where the baseline took no part at
// all, and for a metric of which no ratio can be formed ([result.Absolute]),
// Value is given but Baseline is empty and Ratio zero.
//
// With fewer than two rounds there is no interval: Low and High repeat Value,
// and nothing is called distinguishable.
func Summarize(runs []result.Run, baseline string, seed uint64) []result.Summary {
	var rows []result.Summary
	for _, g := range groups(runs, baseline) {
		for _, m := range g.metrics() {
			if result.Absolute(m) {
				rows = append(rows, g.absolute(m)...)
				continue
			}
			rows = append(rows, g.family(m).summarize(seed)...)
		}
	}
	return rows
}

// summarize gives the baseline's row and one for every path of the family.
func (f family) summarize(seed uint64) []result.Summary {
	if !f.hasBaseline {
		return f.plain()
	}
	floor := f.floor(seed)
	rows := make([]result.Summary, 0, len(f.paths)+1)
	logs := make([][]float64, 0, len(f.paths))
	for _, s := range f.paths {
		rows, logs = append(rows, f.compared(s, floor, seed)), append(logs, s.logs)
	}
	for i, p := range adjusted(logs) {
		rows[i].P = p
		rows[i].Distinguishable = distinguishable(rows[i])
	}
	return append([]result.Summary{f.baselineRow(floor)}, rows...)
}

// plain gives values without a comparison.
func (f family) plain() []result.Summary {
	var rows []result.Summary
	for _, s := range f.paths {
		rows = append(rows, f.row(s))
	}
	return rows
}

// row fills what needs no comparison.
func (f family) row(s series) result.Summary {
	unit := result.Units[f.metric]
	row := result.Summary{
		Case:   f.kase(s.path),
		Metric: f.metric, Unit: unit.Unit, Better: unit.Better,
		P: 1, Rounds: len(s.values), Invalid: s.invalid,
	}
	row.Value, row.Low, row.High = MedianInterval(s.values)
	row.Worst = worst(s.values, f.metric)
	return row
}

// baselineRow is the baseline against itself: the ratio is one by
// definition, its interval is that of half 2 over half 1.
func (f family) baselineRow(a AA) result.Summary {
	row := f.row(f.base)
	row.Baseline, row.Noise, row.P = f.baseline, a.Noise, a.P
	if a.Rounds > 0 {
		row.Ratio, row.RatioLow, row.RatioHigh = 1, a.Low, a.High
	}
	return row
}

// compared is one path against the baseline, without its P.
func (f family) compared(s series, a AA, seed uint64) result.Summary {
	row := f.row(s)
	row.Baseline, row.Noise = f.baseline, a.Noise
	if len(s.logs) == 0 {
		return row
	}
	lo, hi := f.interval(s, a, seed)
	row.Ratio, row.RatioLow, row.RatioHigh = math.Exp(mean(s.logs)), math.Exp(lo), math.Exp(hi)
	return row
}

// interval gives the interval of a path's mean logarithm.
func (f family) interval(s series, a AA, seed uint64) (lo, hi float64) {
	lo, hi = meanInterval(s.logs, f.seed(seed, s.path))
	return lo - a.shift(), hi + a.shift()
}

// distinguishable holds when the interval excludes one, the ratio lies
// outside the noise floor, and the adjusted p-value is below Alpha.
func distinguishable(row result.Summary) bool {
	if row.Rounds < 2 {
		return false
	}
	excludes := row.RatioLow > 1 || row.RatioHigh < 1
	outside := math.Abs(math.Log(row.Ratio)) > math.Log1p(row.Noise)
	return excludes && outside && row.P < Alpha
}

func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x
	}
	return sum / float64(len(xs))
}
