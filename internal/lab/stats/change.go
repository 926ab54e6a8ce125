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
	// SessionLow and SessionHigh are the interval with the session component; both are 0
	// unless both reports have several sessions. Sessions is the smaller number of
	// sessions.
	SessionLow, SessionHigh float64
	Sessions                int
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
		if at < 0 || len(s.logs) == 0 || len(before.paths[at].logs) == 0 || !before.resolves(s.path) ||
			!after.resolves(s.path) {
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
	a, b := f.estimate(before, seed), f.estimate(after, seed)
	d := b.mean - a.mean
	shifts := [2]float64{floors[0].shift(), floors[1].shift()}
	c := Change{
		Case: f.kase(after.path), Metric: f.metric, Before: math.Exp(a.mean), After: math.Exp(b.mean),
		Ratio: math.Exp(d),
		Low:   math.Exp(d - math.Hypot(b.mean-b.low+shifts[1], a.high-a.mean+shifts[0])),
		High:  math.Exp(d + math.Hypot(b.high-b.mean+shifts[1], a.mean-a.low+shifts[0])),
		P:     welchP(before.logs, after.logs), Noise: max(floors[0].Noise, floors[1].Noise),
		Rounds: min(len(before.logs), len(after.logs)),
	}
	if min(len(a.sessions), len(b.sessions)) < 2 {
		return c
	}
	half := math.Hypot(welchHalf(a.sessions, b.sessions), math.Hypot(shifts[0], shifts[1]))
	c.SessionLow, c.SessionHigh = math.Exp(d-half), math.Exp(d+half)
	c.P, c.Sessions = welchP(a.sessions, b.sessions), min(len(a.sessions), len(b.sessions))
	return c
}

// welch returns the standard error of the difference between the means of two samples,
// and the degrees of freedom of its distribution (Welch, "The generalization of Student's
// problem when several different population variances are involved", 1947).
func welch(a, b []float64) (se, freedom float64) {
	_, seA := meanError(a)
	_, seB := meanError(b)
	va, vb := seA*seA, seB*seB
	if va+vb == 0 {
		return 0, 1
	}
	return math.Sqrt(va + vb), (va + vb) * (va + vb) / (va*va/float64(len(a)-1) + vb*vb/float64(len(b)-1))
}

// welchHalf returns half of the width of Welch's 95 % interval.
func welchHalf(a, b []float64) float64 {
	se, freedom := welch(a, b)
	return se * moremath.InvCDF(moremath.TDist{V: freedom})(1-Alpha/2)
}

// welchP returns the two-sided p-value of Welch's test that two samples have the
// same mean; 1 if either has fewer than two observations.
func welchP(a, b []float64) float64 {
	if len(a) < 2 || len(b) < 2 {
		return 1
	}
	difference := math.Abs(mean(a) - mean(b))
	se, freedom := welch(a, b)
	switch {
	case difference == 0:
		return 1
	case se == 0:
		return 0
	}
	return 2 * moremath.TDist{V: freedom}.CDF(-difference/se)
}
