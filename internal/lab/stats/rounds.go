package stats

import (
	"math"

	"fairlead/internal/lab/result"
)

// Point is the ratio of one path to the baseline in one round.
type Point struct {
	Session, Round int
	// Position is that of the round among the rounds of all sessions, from 1.
	Position int
	// Ratio is zero if the round does not count.
	Ratio float64
	Valid bool
}

// PerRound returns the ratios of one case in the order of the rounds; for the
// baseline, those of half 2 to half 1.
func PerRound(runs []result.Run, baseline string, c result.Case, m result.Metric) []Point {
	var points []Point
	for _, g := range groups(runs, baseline) {
		if g.kase(c.Path) != c {
			continue
		}
		for i, n := range g.order() {
			diff, valid, took := g.compare(n, c.Path, m, true)
			if !took {
				continue
			}
			p := Point{Session: n.session, Round: n.round, Position: i + 1, Valid: valid}
			if valid {
				p.Ratio = math.Exp(diff)
			}
			points = append(points, p)
		}
	}
	return points
}
