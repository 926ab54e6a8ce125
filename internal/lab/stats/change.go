package stats

import (
	"math"
	"slices"

	moremath "github.com/aclements/go-moremath/stats"

	"fairlead/internal/lab/result"
)

// Change is the change of a case's ratio from one session to another.
type Change struct {
	result.Case
	Metric result.Metric
	// Before and After are the ratios to the baseline in the two sessions.
	Before, After float64
	// Ratio is After over Before, with a 95 % interval, and P its p-value,
	// adjusted over the paths of one client, workload, tool and metric.
	Ratio, Low, High, P float64
	// Noise is the greater noise floor, and Rounds the smaller number of valid
	// rounds of the two sessions.
	Noise  float64
	Rounds int
}

// Distinguishable applies the same rules as for a ratio within one session. With
// three rounds per session it is always false: by chance, three values are all
// above or all below three others in one case of ten.
func (c Change) Distinguishable() bool {
	excludes := c.Low > 1 || c.High < 1
	return c.Rounds > 3 && excludes && math.Abs(math.Log(c.Ratio)) > math.Log1p(c.Noise) && c.P < Alpha
}

// Changes compares every ratio to the baseline that both sessions have. It does not
// compare absolute figures: a busier machine changes them, and the baseline's too.
// Rounds of different sessions are not paired.
func Changes(before, after []result.Run, baseline string, seed uint64) []Change {
	var all []Change
	earlier := groups(before, baseline)
	for _, g := range groups(after, baseline) {
		at := slices.IndexFunc(earlier, func(e *group) bool {
			return e.client == g.client && e.workload == g.workload && e.tool == g.tool
		})
		if at < 0 {
			continue
		}
		for _, m := range g.metrics() {
			all = append(all, changesIn(earlier[at].family(m), g.family(m), seed)...)
		}
	}
	return all
}

// changesIn compares two families; without a baseline there is no ratio.
func changesIn(before, after family, seed uint64) []Change {
	if !before.hasBaseline || !after.hasBaseline {
		return nil
	}
	var all []Change
	var ps []float64
	floors := [2]AA{before.floor(seed), after.floor(seed)}
	for _, s := range after.paths {
		at := slices.IndexFunc(before.paths, func(b series) bool { return b.path == s.path })
		if at < 0 || len(s.logs) == 0 || len(before.paths[at].logs) == 0 {
			continue
		}
		c := after.change(before.paths[at], s, floors, seed)
		all, ps = append(all, c), append(ps, c.P)
	}
	for i, p := range holm(ps) {
		all[i].P = p
	}
	return all
}

// change compares one path. The distances of the two intervals' ends from their
// middles are added as errors are, as the root of the sum of squares (Zou and
// Donner, "Construction of confidence limits about effect measures", 2008).
func (f family) change(before, after series, floors [2]AA, seed uint64) Change {
	a, b := mean(before.logs), mean(after.logs)
	lowA, highA := f.interval(before, floors[0], seed)
	lowB, highB := f.interval(after, floors[1], seed)
	d := b - a
	return Change{
		Case: f.kase(after.path), Metric: f.metric, Before: math.Exp(a), After: math.Exp(b),
		Ratio: math.Exp(d), Low: math.Exp(d - math.Hypot(b-lowB, highA-a)),
		High: math.Exp(d + math.Hypot(highB-b, a-lowA)),
		P:    welchP(before.logs, after.logs), Noise: max(floors[0].Noise, floors[1].Noise),
		Rounds: min(len(before.logs), len(after.logs)),
	}
}

// welchP returns the two-sided p-value of Welch's test that two samples have the
// same mean; 1 if either has fewer than two observations.
func welchP(a, b []float64) float64 {
	if len(a) < 2 || len(b) < 2 {
		return 1
	}
	meanA, seA := meanError(a)
	meanB, seB := meanError(b)
	va, vb := seA*seA, seB*seB
	switch {
	case meanA == meanB:
		return 1
	case va+vb == 0:
		return 0
	}
	freedom := (va + vb) * (va + vb) / (va*va/float64(len(a)-1) + vb*vb/float64(len(b)-1))
	return 2 * moremath.TDist{V: freedom}.CDF(-math.Abs(meanA-meanB)/math.Sqrt(va+vb))
}
