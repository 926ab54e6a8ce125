package stats

import (
	"math"

	"fairlead/internal/lab/result"
)

// Point is what one path showed in one round against the baseline.
type Point struct {
	Round int
	// Ratio is zero where the round does not count.
	Ratio float64
	Valid bool
}

// PerRound gives the ratios of one case round by round; for the baseline
// these are half 2 over half 1.
func PerRound(runs []result.Run, baseline string, c result.Case, m result.Metric) []Point {
	var points []Point
	for _, g := range groups(runs, baseline) {
		if g.kase(c.Path) != c {
			continue
		}
		for _, n := range g.order() {
			diff, valid, took := g.compare(n, c.Path, m, true)
			switch {
			case !took:
			case valid:
				points = append(points, Point{Round: n, Ratio: math.Exp(diff), Valid: true})
			default:
				points = append(points, Point{Round: n})
			}
		}
	}
	return points
}
