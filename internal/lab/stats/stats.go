// Package stats computes figures from the laboratory's runs: medians and ratios with
// intervals, exact p-values, and the noise floor from the baseline, which is measured
// twice. It does not measure or print, and does not decide which runs are valid.
//
// # Theory of operation
//
// A round contains the baseline twice, first and last, and every path once in
// between. Slow drifts (temperature, a neighbour on the same machine) affect all runs
// of a round in the same manner. So runs are compared within their round, on a
// logarithmic scale, and only these comparisons are averaged:
//
//	r = log(path) - (log(half 1) + log(half 2)) / 2     one per round
//	d = log(half 2) - log(half 1)                       the A/A null
//
// The ratio of a path is exp(mean r). Its interval is a bootstrap over rounds (see
// meanInterval for few rounds), widened by half of the mean of d (AA.shift), because
// the baseline between the halves may be equal to either of them. If whole sessions were
// repeated, a second interval contains the differences between sessions, and the verdicts
// use it (see estimateOf). d is the same
// statistic for two measurements of the same path; [Floor] computes the noise floor
// from it. A percentile is computed within a run, so one p99 is one observation. No
// outliers are dropped: only runs that are marked as invalid are left out, and they
// are counted.
package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"fairlead/internal/lab/result"
)

// Alpha is the significance level of every test; intervals cover 1-Alpha.
const Alpha = 0.05

// Summarize returns one row per path, client, workload, tool and metric. The same runs
// and seed always give the same rows, in a stable order: by client, workload, tool and
// metric, the baseline before the other paths.
//
// A round counts for a path if the path's run and both halves of the baseline are
// valid and have the metric; the other rounds in which the path was measured are
// counted as Invalid. A path without any valid round has a row with Rounds 0 and no
// figures. If the baseline was not measured, or the metric has no ratio
// ([result.Absolute]), the row has a Value, but Baseline is empty and Ratio zero.
//
// With fewer than two rounds there is no interval: Low and High are Value, and no row
// is Distinguishable. A row without a ratio that can be given, or without its interval,
// has the reason in Lacks.
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

// summarize returns the baseline's row and one for every path of the family.
func (f family) summarize(seed uint64) []result.Summary {
	if !f.hasBaseline {
		return f.plain()
	}
	if !f.resolved(f.base.path) {
		return f.unresolved(append([]series{f.base}, f.paths...))
	}
	floor := f.floor(seed)
	rows := make([]result.Summary, 0, len(f.paths)+1)
	logs := make([][]float64, 0, len(f.paths))
	var lacking []series
	for _, s := range f.paths {
		if !f.resolved(s.path) {
			lacking = append(lacking, s)
			continue
		}
		rows, logs = append(rows, f.compared(s, floor, seed)), append(logs, s.tested())
	}
	for i, p := range adjusted(logs) {
		rows[i].P = p
		rows[i].Distinguishable = distinguishable(rows[i])
	}
	rows = append(rows, f.unresolved(lacking)...)
	slices.SortFunc(rows, func(a, b result.Summary) int { return cmp.Compare(a.Path, b.Path) })
	return append([]result.Summary{f.baselineRow(floor)}, rows...)
}

// unresolved returns rows with values and the reason why they have no ratio.
func (f family) unresolved(all []series) []result.Summary {
	var rows []result.Summary
	for _, s := range all {
		row := f.row(s)
		row.Lacks = unresolvedIdle
		rows = append(rows, row)
	}
	return rows
}

// plain returns rows with values and without a comparison.
func (f family) plain() []result.Summary {
	var rows []result.Summary
	for _, s := range f.paths {
		rows = append(rows, f.row(s))
	}
	return rows
}

// row returns a row with the fields that need no comparison.
func (f family) row(s series) result.Summary {
	unit := result.Units[f.metric]
	row := result.Summary{
		Case:   f.kase(s.path),
		Metric: f.metric, Unit: unit.Unit, Better: unit.Better,
		P: 1, Rounds: len(s.values), Invalid: s.invalid, Sessions: f.sessionsOf(s),
	}
	row.Value, row.Low, row.High = MedianInterval(s.values)
	row.Worst = worst(s.values, f.metric)
	return row
}

// baselineRow compares the baseline with itself: the ratio is one by definition, and
// its interval is that of half 2 to half 1.
func (f family) baselineRow(a AA) result.Summary {
	row := f.row(f.base)
	row.Baseline, row.Noise, row.P = f.baseline, a.Noise, a.P
	if a.Rounds > 0 {
		row.Ratio = 1
		setInterval(&row, a.estimate, 0)
	}
	return row
}

// compared returns the row of one path with its ratio to the baseline, without P.
func (f family) compared(s series, a AA, seed uint64) result.Summary {
	row := f.row(s)
	row.Baseline, row.Noise = f.baseline, a.Noise
	if len(s.logs) == 0 {
		return row
	}
	e := f.estimate(s, seed)
	row.Ratio = math.Exp(e.mean)
	setInterval(&row, e, a.shift())
	return row
}

// setInterval sets the intervals of a row. shift is the widening for the difference
// between the baseline's halves.
func setInterval(row *result.Summary, e estimate, shift float64) {
	widest := math.Log(result.WidestInterval)
	if low, high := e.low-shift, e.high+shift; high-low <= widest {
		row.RatioLow, row.RatioHigh = math.Exp(low), math.Exp(high)
	} else {
		row.Lacks = fmt.Sprintf("the %d rounds differ too much for an interval: measure more rounds", row.Rounds)
	}
	if row.Sessions < 2 {
		return
	}
	if low, high := e.sessionLow-shift, e.sessionHigh+shift; high-low <= widest {
		row.SessionLow, row.SessionHigh = math.Exp(low), math.Exp(high)
	} else {
		row.Lacks = fmt.Sprintf("the %d sessions differ too much for an interval: measure more sessions", row.Sessions)
	}
}

// distinguishable reports whether the interval excludes one, the ratio is outside the
// noise floor, and the adjusted p-value is below Alpha. In a report of several sessions it
// is the interval with the session component, which needs two sessions.
func distinguishable(row result.Summary) bool {
	if !row.HasInterval() {
		return false
	}
	low, high := row.Interval()
	excludes := low > 1 || high < 1
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
