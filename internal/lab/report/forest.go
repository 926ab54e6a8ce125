package report

import (
	"fmt"
	"slices"

	"fairlead/internal/lab/result"
)

// Geometry of a forest plot.
const (
	forestWidth = 520.0
	forestLeft  = 108.0
	forestRight = 400.0
	rowHeight   = 25.0
	forestTop   = 12.0
)

// farthest is the greatest distance from 1, as a factor, that the common axis of the
// plots includes. One ratio of 182 would flatten the differences in all other plots.
const farthest = 10

// forests draws one plot per head column of a client: one row per path with its
// ratio and interval, over the noise band. Plots with ratios farther than [farthest]
// from 1 have an axis of their own; the others have a common one. Shares of idle time
// are shown in the table only, because near zero their ratios would stretch the common
// axis. Metrics without ratios are omitted too.
func forests(r *result.Report, client result.Client, columns []column) []chart {
	columns = slices.DeleteFunc(slices.Clone(columns),
		func(c column) bool { return c.metric == result.IdleShare || result.Absolute(c.metric) })
	isFar := func(c column) bool { return far(ratioEnds(r, client, []column{c})) }
	near := slices.DeleteFunc(slices.Clone(columns), isFar)
	var all []chart
	for _, c := range columns {
		alike, note := near, ""
		if isFar(c) {
			alike, note = []column{c}, ", other scale"
		}
		ch := forest(r, c, logAxis(ratioEnds(r, client, alike), 0.8, 1.25, forestLeft, forestRight))
		ch.Caption += note
		all = append(all, ch)
	}
	return all
}

// far reports whether ratios are outside the common axis.
func far(ratios []float64) bool {
	return slices.ContainsFunc(ratios, func(x float64) bool { return x > farthest || x < 1.0/farthest })
}

// ratioEnds returns the values that the common axis must include.
func ratioEnds(r *result.Report, client result.Client, columns []column) []float64 {
	var all []float64
	for _, c := range columns {
		for _, p := range pathsOf(r, client) {
			if s := c.at(r, p); s != nil && s.Rounds > 0 && s.Baseline != "" {
				all = append(all, s.Ratio)
				if low, high := s.Interval(); s.HasInterval() {
					all = append(all, s.RatioLow, s.RatioHigh, low, high)
				}
			}
		}
	}
	return all
}

func forest(r *result.Report, c column, x axis) chart {
	paths := pathsOf(r, c.client)
	bottom := forestTop + rowHeight*float64(len(paths))
	ch := chart{
		Title: c.title, Caption: direction(c.metric), Unit: c.scale.label,
		W: forestWidth, H: bottom + 24,
	}
	if base := c.at(r, baselineOf(r)); base != nil && base.Noise > 0 {
		from, to := x.at(1/(1+base.Noise)), x.at(1+base.Noise)
		ch.Back = append(ch.Back, rectMark{from, forestTop, to - from, bottom - forestTop, "noise", "noise floor ±" +
			percent(base.Noise)})
	}
	for _, v := range x.ticks() {
		ch.line(x.at(v), forestTop, x.at(v), bottom, "grid")
		ch.label(x.at(v), bottom+15, "middle", "tick", formatTick(v))
	}
	ch.line(x.at(1), forestTop, x.at(1), bottom, "one")
	for i, p := range paths {
		forestRow(&ch, c.at(r, p), c, p, x, forestTop+rowHeight*(float64(i)+0.5))
	}
	ch.Text = forestWords(ch)
	return ch
}

// forestRow draws one path: filled if it is distinguishable from the baseline,
// hollow if not.
func forestRow(ch *chart, s *result.Summary, c column, path string, x axis, y float64) {
	ch.label(forestLeft-12, y+4, "end", "name", path)
	switch {
	case s == nil || s.Rounds == 0:
		ch.label(forestWidth, y+4, "end", "figure quiet", "no valid round")
		return
	case s.Baseline == "":
		ch.label(forestWidth, y+4, "end", "figure quiet", "no ratio")
		return
	}
	class := "mark " + verdictClass(judge(s))
	interval := "no interval"
	if low, high := s.Interval(); s.HasInterval() {
		interval = "95 % " + formatRatio(low) + " to " + formatRatio(high)
		ch.whisker(s, x, y, class)
	}
	hint := fmt.Sprintf("%s: %s × %s, %s; %s %s", path, formatRatio(s.Ratio), s.Baseline, interval,
		c.scale.format(s.Value), c.scale.label)
	ch.Dots = append(ch.Dots, dotMark{X: x.at(s.Ratio), Y: y, R: 4.5, Class: class, Hint: hint})
	text := formatRatio(s.Ratio)
	if s.Rounds > 1 {
		text += " " + formatMargin(s)
	}
	if judge(s) == same {
		text = "≈ " + text
	}
	ch.label(forestWidth, y+4, "end", "figure "+verdictClass(judge(s)), text)
}

// whisker draws the intervals of a ratio: that with the differences between sessions is
// thin.
func (c *chart) whisker(s *result.Summary, x axis, y float64, class string) {
	if s.RatioLow > 0 {
		c.line(x.at(s.RatioLow), y, x.at(s.RatioHigh), y, class)
		for _, end := range []float64{s.RatioLow, s.RatioHigh} {
			c.line(x.at(end), y-4, x.at(end), y+4, class)
		}
	}
	if low, high := s.Interval(); s.Sessions > 1 {
		c.line(x.at(low), y, x.at(high), y, class+" thin")
	}
}

// forestWords describes the drawing in words, for screen readers.
func forestWords(ch chart) string {
	text := ch.Title + ", ratio to the baseline."
	for _, d := range ch.Dots {
		text += " " + d.Hint + "."
	}
	return text
}

func verdictClass(v verdict) string {
	return map[verdict]string{unknown: "base", same: "same", better: "better", worse: "worse"}[v]
}

func direction(m result.Metric) string {
	if result.Units[m].Better == result.Higher {
		return "more is better"
	}
	return "less is better"
}
