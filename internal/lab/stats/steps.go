package stats

import (
	"math"
	"slices"

	"fairlead/internal/lab/result"
)

// Steps returns the steps with what each adds, from the runs of Fairlead's generator:
// for every client and workload the metric that shows a path's cost, and its
// difference to the step before. Differences are computed within a round, in the
// metric's unit because the costs of hops add up, and then averaged. The rules for
// distinguishable are those for ratios: noise floor, and Holm's method over the steps
// of a figure.
func Steps(runs []result.Run, baseline string, steps []result.Step, seed uint64) []result.Step {
	steps = slices.Clone(steps)
	for _, g := range groups(runs, baseline) {
		if g.tool != "" && g.tool != result.OwnTool {
			continue
		}
		for i, a := range g.family(result.Cost(g.workload)).steps(steps, seed) {
			steps[i].Figures = append(steps[i].Figures, a)
		}
	}
	return steps
}

// steps returns the family's figure of every step.
func (f family) steps(steps []result.Step, seed uint64) []result.Added {
	aa := f.floor(seed)
	figures := make([]result.Added, len(steps))
	var compared []int
	var differences [][]float64
	for i, s := range steps {
		d := f.added(s, aa, seed, &figures[i])
		if s.Over != "" {
			compared, differences = append(compared, i), append(differences, d.tested())
		}
	}
	for at, p := range adjusted(differences) {
		a := &figures[compared[at]]
		a.P = p
		low, high := a.Interval()
		a.Distinguishable = a.Rounds > 1 && a.Sessions != 1 && (low > 0 || high < 0) && math.Abs(a.Added) > a.Noise &&
			p < Alpha
	}
	return figures
}

// added compares a step with the one before, and returns the differences as the series'
// logs. P is not filled in.
func (f family) added(s result.Step, aa AA, seed uint64, a *result.Added) series {
	*a = result.Added{Client: f.client, Workload: f.workload, Metric: f.metric, Unit: result.Units[f.metric].Unit, P: 1}
	differences := series{path: s.Path + " over " + s.Over}
	var values, befores []float64
	for _, n := range f.order() {
		x, ok := f.valid(n, s.Path)
		before, okBefore := f.valid(n, s.Over)
		if ok && s.Over == "" {
			values = append(values, x)
		}
		if ok && okBefore {
			values, befores = append(values, x), append(befores, before)
			differences.logs = append(differences.logs, x-before)
			differences.sessions = append(differences.sessions, n.session)
		}
	}
	a.Rounds, a.Value = len(values), Median(values)
	if len(differences.logs) > 0 {
		f.setAdded(a, differences, f.drift(s, aa, befores), seed)
		a.Noise = f.stepFloor(s, aa) * max(a.Value, Median(befores))
	}
	return differences
}

// drift returns the widening of a step's interval for the difference between the
// baseline's halves.
func (f family) drift(s result.Step, aa AA, befores []float64) float64 {
	if s.Over != f.baseline {
		return 0
	}
	return math.Expm1(aa.shift()) * Median(befores)
}

// setAdded sets what a step adds, with both intervals.
func (f family) setAdded(a *result.Added, differences series, drift float64, seed uint64) {
	e := f.estimate(differences, seed)
	a.Added, a.Low, a.High = e.mean, e.low-drift, e.high+drift
	if a.Sessions = f.sessionsOf(differences); a.Sessions > 1 {
		a.SessionLow, a.SessionHigh = e.sessionLow-drift, e.sessionHigh+drift
	}
}

// stepFloor returns the noise floor of a step as a share of the figure. The difference
// of a path to the mean of the baseline's halves scatters by √(3/4) of the difference
// between the halves ([Floor]). The difference between two paths scatters as the
// difference between the halves does.
func (f family) stepFloor(s result.Step, aa AA) float64 {
	if s.Over == f.baseline {
		return aa.Noise
	}
	return math.Expm1(math.Log1p(aa.Noise) / math.Sqrt(0.75))
}

// valid returns the figure of a path in a round; ok is false if there is none, or if
// path is empty.
func (f family) valid(n place, path string) (x float64, ok bool) {
	if _, valid, took := f.compare(n, path, f.metric, false); !valid || !took {
		return 0, false
	}
	return f.value(n, path, f.metric), true
}
