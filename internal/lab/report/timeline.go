package report

import (
	"fmt"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// timelines draws, per head column, every path's ratio in the order of the rounds. Only
// these charts show a drift or a single bad round.
func timelines(r *result.Report, columns []column) []chart {
	var all []chart
	for _, c := range columns {
		if ch, any := timeline(r, c); any && !result.Absolute(c.metric) {
			all = append(all, ch)
		}
	}
	return all
}

// track is one path over the rounds.
type track struct {
	path   string
	class  string
	points []stats.Point
}

func timeline(r *result.Report, c column) (ch chart, any bool) {
	var tracks []track
	var ratios []float64
	last := 1
	for _, p := range pathsOf(r, c.client) {
		k := result.Case{Path: p, Client: c.client, Workload: c.workload, Tool: c.tool}
		t := track{p, pathClass(r, p), stats.PerRound(r.Runs, baselineOf(r), k, c.metric)}
		for _, pt := range t.points {
			ratios, last = append(ratios, pt.Ratio), max(last, pt.Position)
		}
		tracks = append(tracks, t)
	}
	ch = chart{Title: c.title, Caption: direction(c.metric), Unit: "ratio", W: plotWidth, H: plotBottom + 40}
	y := logAxis(ratios, 0.9, 1.1, plotBottom-20, plotTop)
	x := func(round int) float64 {
		return plotLeft + 12 + (plotRight-plotLeft-24)*float64(round-1)/float64(max(1, last-1))
	}
	ch.grid(y.ticks(), y.at, 1)
	ch.line(plotLeft, y.at(1), plotRight, y.at(1), "one")
	for round := 1; round <= last; round += 1 + last/16 {
		ch.label(x(round), plotBottom+16, "middle", "tick", fmt.Sprint(round))
	}
	ch.label((plotLeft+plotRight)/2, plotBottom+34, "middle", "tick", "round")
	drawTracks(&ch, tracks, x, y)
	return ch, len(ratios) > 0
}

// roundOf names a point's round, and its session if there are several.
func roundOf(p stats.Point) string {
	if p.Session > 0 {
		return fmt.Sprintf("session %d, round %d", p.Session, p.Round)
	}
	return fmt.Sprint("round ", p.Round)
}

// drawTracks draws the lines; a round that does not count is a cross at the bottom
// of the plot.
func drawTracks(ch *chart, tracks []track, x func(int) float64, y axis) {
	ch.Text = ch.Title + ", ratio to the baseline by round."
	var ends []labelMark
	for _, t := range tracks {
		var xs, ys []float64
		for _, p := range t.points {
			if !p.Valid {
				ch.Dots = append(ch.Dots, dotMark{X: x(p.Position), Y: plotBottom - 5, R: 4, Class: "lost " + t.class,
					Cross: true,
					Hint:  fmt.Sprintf("%s: %s does not count", t.path, roundOf(p))})
				ch.Text += fmt.Sprintf(" %s: %s does not count.", t.path, roundOf(p))
				continue
			}
			xs, ys = append(xs, x(p.Position)), append(ys, y.at(p.Ratio))
			ch.Dots = append(ch.Dots, dotMark{X: x(p.Position), Y: y.at(p.Ratio), R: 2.5, Class: "point " + t.class,
				Hint: fmt.Sprintf("%s: %s, %s", t.path, roundOf(p), formatRatio(p.Ratio))})
		}
		if len(xs) == 0 {
			continue
		}
		ch.curve(xs, ys, "curve "+t.class)
		ends = append(ends, labelMark{plotRight + 6, ys[len(ys)-1] + 4, "start", "end " + t.class, t.path})
		ch.Text += fmt.Sprintf(" %s: %s valid.", t.path, plural(len(xs), "round"))
	}
	ch.Labels = append(ch.Labels, spread(ends, 15)...)
}
