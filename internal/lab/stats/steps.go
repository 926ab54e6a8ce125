package stats

import (
	"slices"

	"fairlead/internal/lab/result"
)

// Steps fills in what each step adds, from our own generator's runs: for every
// client and workload the figure that shows a path's cost, and its difference
// to the step before. Differences are taken within a round, in the figure's own
// unit because hops add up, and only then averaged.
func Steps(runs []result.Run, baseline string, steps []result.Step, seed uint64) []result.Step {
	steps = slices.Clone(steps)
	for _, g := range groups(runs, baseline) {
		if g.tool != "" && g.tool != result.OwnTool {
			continue
		}
		m := result.Cost(g.workload)
		f := g.family(m)
		for i := range steps {
			steps[i].Figures = append(steps[i].Figures, f.added(steps[i], seed))
		}
	}
	return steps
}

// added compares a step with the one before.
func (f family) added(s result.Step, seed uint64) result.Added {
	a := result.Added{Client: f.client, Workload: f.workload, Metric: f.metric, Unit: result.Units[f.metric].Unit}
	var values, differences []float64
	for _, n := range f.order() {
		x, ok := f.valid(n, s.Path)
		before, okBefore := f.valid(n, s.Over)
		if ok && s.Over == "" {
			values = append(values, x)
		}
		if ok && okBefore {
			values, differences = append(values, x), append(differences, x-before)
		}
	}
	a.Rounds, a.Value = len(values), Median(values)
	if len(differences) > 0 {
		a.Added = mean(differences)
		a.Low, a.High = meanInterval(differences, f.seed(seed, s.Path+" over "+s.Over))
	}
	a.Distinguishable = len(differences) > 1 && (a.Low > 0 || a.High < 0)
	return a
}

// valid gives the figure of a path in a round; ok is false where there is
// none, and for no path.
func (f family) valid(n int, path string) (x float64, ok bool) {
	if _, valid, took := f.compare(n, path, f.metric, false); !valid || !took {
		return 0, false
	}
	return f.value(n, path, f.metric), true
}
