package stats

import (
	"slices"

	"fairlead/internal/lab/result"
)

// absolute returns the rows of a metric that is not compared: the baseline's, which
// uses its first half only, and one per path.
func (g *group) absolute(m result.Metric) []result.Summary {
	f := family{group: g, metric: m}
	var rows []result.Summary
	for _, path := range append([]string{g.baseline}, g.paths()...) {
		s, lacks := series{path: path}, 0
		for _, n := range g.order() {
			r := g.rounds[n].paths[path]
			if path == g.baseline {
				r = g.rounds[n].halves[0]
			}
			switch {
			case r == nil:
			case len(r.Invalid) > 0:
				s.invalid++
			case !has(r, m):
				lacks++
			default:
				s.values = append(s.values, r.Metrics[m])
			}
		}
		if len(s.values) > 0 || s.invalid > 0 && lacks == 0 {
			rows = append(rows, f.row(s))
		}
	}
	return rows
}

// worst returns the worst value of a metric; 0 if there are no values.
func worst(xs []float64, m result.Metric) float64 {
	switch {
	case len(xs) == 0:
		return 0
	case result.Units[m].Better == result.Higher:
		return slices.Min(xs)
	}
	return slices.Max(xs)
}
