package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// chart is a drawing for the template. The code computes the geometry; the style
// sheet defines the appearance per class.
type chart struct {
	ID            string
	Title, Text   string // Text describes the drawing in words
	W, H          float64
	Back          []rectMark // behind the lines
	Lines         []lineMark
	Rects         []rectMark
	Curves        []curveMark
	Dots          []dotMark
	Labels        []labelMark
	Caption, Unit string
}

type lineMark struct {
	X1, Y1, X2, Y2 float64
	Class          string
}

type rectMark struct {
	X, Y, W, H  float64
	Class, Hint string
}

type curveMark struct{ D, Class string }

// dotMark is a point, or with Cross an x, for a round that does not count.
type dotMark struct {
	X, Y, R     float64
	Class, Hint string
	Cross       bool
}

type labelMark struct {
	X, Y                float64
	Anchor, Class, Text string
}

// key is one entry of a legend.
type key struct{ Class, Text string }

func (c *chart) line(x1, y1, x2, y2 float64, class string) {
	c.Lines = append(c.Lines, lineMark{x1, y1, x2, y2, class})
}

func (c *chart) label(x, y float64, anchor, class, text string) {
	c.Labels = append(c.Labels, labelMark{x, y, anchor, class, text})
}

func (c *chart) rect(x, y, w, h float64, class, hint string) {
	c.Rects = append(c.Rects, rectMark{x, y, max(0, w), h, class, hint})
}

// curve connects points with straight lines.
func (c *chart) curve(xs, ys []float64, class string) {
	var d strings.Builder
	for i := range xs {
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], xs[i], ys[i])
	}
	c.Curves = append(c.Curves, curveMark{d.String(), class})
}

// grid draws the horizontal lines of a plot at values, which it writes in the unit of the
// divisor.
func (c *chart) grid(values []float64, y func(float64) float64, divisor float64) {
	for _, v := range values {
		c.line(plotLeft, y(v), plotRight, y(v), "grid")
		c.label(plotLeft-8, y(v)+4, "end", "tick", formatTick(v/divisor))
	}
}

// axis maps values on a logarithmic scale to coordinates between from and to.
type axis struct{ low, high, from, to float64 }

// logAxis returns an axis that includes the values, with a margin at both ends.
func logAxis(values []float64, least, most, from, to float64) axis {
	a := axis{low: least, high: most, from: from, to: to}
	for _, v := range values {
		if v > 0 && !math.IsInf(v, 0) {
			a.low, a.high = min(a.low, v), max(a.high, v)
		}
	}
	room := math.Pow(a.high/a.low, 0.04)
	a.low, a.high = a.low/room, a.high*room
	return a
}

// at returns the coordinate of a value; a value outside the axis is placed at its
// edge.
func (a axis) at(v float64) float64 {
	v = min(max(v, a.low), a.high)
	return a.from + (a.to-a.from)*math.Log(v/a.low)/math.Log(a.high/a.low)
}

// ticks returns round values within the axis, about three to seven.
func (a axis) ticks() []float64 {
	for _, steps := range [][]float64{{1}, {1, 3}, {1, 2, 5}, {1, 1.5, 2, 3, 5, 7},
		{1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9}} {
		if all := a.ticksOf(steps); len(all) >= 3 {
			return all
		}
	}
	return a.fineTicks()
}

func (a axis) ticksOf(steps []float64) []float64 {
	var all []float64
	for e := math.Floor(math.Log10(a.low)); e <= math.Log10(a.high); e++ {
		for _, s := range steps {
			if v := s * math.Pow(10, e); v >= a.low && v <= a.high {
				all = append(all, v)
			}
		}
	}
	return all
}

// fineTicks is for axes that span a few per cent, where the scale is nearly
// linear.
func (a axis) fineTicks() []float64 {
	step := math.Pow(10, math.Floor(math.Log10(a.high-a.low)))
	for (a.high-a.low)/step < 3 {
		step /= 2
	}
	var all []float64
	for v := math.Ceil(a.low/step) * step; v <= a.high; v += step {
		all = append(all, v)
	}
	return all
}

// perWorkload draws one chart per workload of a client, of what its paths have. of reports whether a path has it.
func perWorkload[T any](r *result.Report, client result.Client, of func(workload, path string) (T, bool),
	draw func(workload string, all []T) chart) []chart {
	var charts []chart
	for _, w := range workloadsOf(r, client) {
		var all []T
		for _, p := range pathsOf(r, client) {
			if one, ok := of(w, p); ok {
				all = append(all, one)
			}
		}
		if len(all) > 0 {
			charts = append(charts, draw(w, all))
		}
	}
	return charts
}

// fromZero draws the linear axis of a plot with rows, from 0 to most in the unit of the divisor. It returns the place
// of a value on it.
func (ch *chart) fromZero(most, divisor, bottom float64) func(float64) float64 {
	x := func(v float64) float64 {
		return forestLeft + (forestRight-forestLeft)*v/math.Max(most, math.SmallestNonzeroFloat64)
	}
	for i := range 5 {
		v := most * float64(i) / 4
		ch.line(x(v), forestTop, x(v), bottom, "grid")
		ch.label(x(v), bottom+15, "middle", "tick", formatTick(v/divisor))
	}
	return x
}

// formatTick writes a value with at most three digits, or in full from 1000 on.
func formatTick(v float64) string {
	if a := math.Abs(v); a >= 1000 && a < 1e15 {
		number := grouped(fmt.Sprintf("%.0f", a), " ")
		if v < 0 {
			return "-" + number
		}
		return number
	}
	return fmt.Sprintf("%.3g", v)
}

// spread moves labels apart so that they do not overlap, and keeps their order.
func spread(labels []labelMark, height float64) []labelMark {
	slices.SortStableFunc(labels, func(a, b labelMark) int { return cmp.Compare(a.Y, b.Y) })
	for i := 1; i < len(labels); i++ {
		labels[i].Y = max(labels[i].Y, labels[i-1].Y+height)
	}
	return labels
}

// pathClass returns the class for a path's colour and dash, the same in all
// charts: the baseline is neutral, the others get consecutive numbers.
func pathClass(r *result.Report, path string) string {
	base := baselineOf(r)
	if path == base {
		return "p0"
	}
	n := 0
	for _, c := range clientsOf(r) {
		n = max(n, slices.Index(pathsOf(r, c), path))
	}
	return fmt.Sprint("p", 1+(max(n, 1)-1)%7)
}
