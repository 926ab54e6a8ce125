package report

import (
	"fmt"
	"math"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// Geometry of the plots with an x and a y axis.
const (
	plotWidth  = 520.0
	plotLeft   = 52.0
	plotRight  = 436.0
	plotTop    = 12.0
	plotBottom = 230.0
)

// tail is one path's latency: the median over the rounds, per percentile.
type tail struct {
	path     string
	class    string
	levels   []float64
	seconds  []float64
	observed uint64
}

// quantilePlots draws the latency of every workload that measures it.
func quantilePlots(r *result.Report, client result.Client) []chart {
	return perWorkload(r, client, func(workload, path string) (tail, bool) {
		t := tailOf(r, client, workload, path)
		return t, len(t.levels) > 1
	}, quantilePlot)
}

// tailOf combines the rounds of one path. It omits the maximum, and percentiles
// for which a round has too few observations.
func tailOf(r *result.Report, client result.Client, workload, path string) tail {
	t := tail{path: path, class: pathClass(r, path)}
	byLevel := map[float64][]float64{}
	for _, run := range r.Runs {
		if run.Path != path || run.Client != client || run.Workload != workload || len(run.Invalid) > 0 ||
			run.Latency == nil {
			continue
		}
		l := run.Latency
		for i := range min(len(l.Levels), len(l.Quantiles)) {
			q := l.Levels[i]
			if (1-q)*float64(l.Count) < 1 || l.Quantiles[i] <= 0 {
				continue
			}
			if byLevel[q] == nil {
				t.levels = append(t.levels, q)
			}
			byLevel[q] = append(byLevel[q], l.Quantiles[i])
		}
		t.observed += l.Count
	}
	for _, q := range t.levels {
		t.seconds = append(t.seconds, stats.Median(byLevel[q]))
	}
	return t
}

// nines is the coordinate of a percentile, which widens the tail: 0.9 is at 1,
// 0.99 at 2.
func nines(q float64) float64 { return -math.Log10(1 - q) }

func quantilePlot(workload string, tails []tail) chart {
	ch := chart{Title: workloadTitle(workload), Caption: "less is better", W: plotWidth, H: plotBottom + 40}
	var all []float64
	most := 1.0
	for _, t := range tails {
		all = append(all, t.seconds...)
		most = max(most, nines(t.levels[len(t.levels)-1]))
	}
	y := logAxis(all, all[0], all[0]*1.5, plotBottom, plotTop)
	x := func(q float64) float64 { return plotLeft + (plotRight-plotLeft)*nines(q)/most }
	unit := scaleAmong(seconds(), []float64{y.high})
	ch.Unit = unit.label
	ch.grid(y.ticks(), y.at, unit.divisor)
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999} {
		if nines(q) <= most {
			ch.line(x(q), plotTop, x(q), plotBottom, "grid")
			ch.label(x(q), plotBottom+16, "middle", "tick", fmt.Sprintf("%g %%", q*100))
		}
	}
	ch.label((plotLeft+plotRight)/2, plotBottom+34, "middle", "tick", "percentile")
	drawTails(&ch, tails, x, y)
	return ch
}

// drawTails draws the curves and writes their names at the ends, moved apart if
// they would overlap.
func drawTails(ch *chart, tails []tail, x func(float64) float64, y axis) {
	ch.Text = ch.Title + ", latency by percentile."
	var ends []labelMark
	for _, t := range tails {
		xs, ys := make([]float64, len(t.levels)), make([]float64, len(t.levels))
		for i, q := range t.levels {
			xs[i], ys[i] = x(q), y.at(t.seconds[i])
		}
		ch.curve(xs, ys, "curve "+t.class)
		last := len(xs) - 1
		ends = append(ends, labelMark{xs[last] + 8, ys[last] + 4, "start", "end " + t.class, t.path})
		ch.Text += fmt.Sprintf(" %s: %s at %g %%.", t.path, writeSeconds(t.seconds[last]), t.levels[last]*100)
	}
	ch.Labels = append(ch.Labels, spread(ends, 15)...)
}

func writeSeconds(x float64) string {
	s := scaleAmong(seconds(), []float64{x})
	return s.format(x) + " " + s.label
}
