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

// forests draws one plot per head column of a client: one row per path with its
// ratio and interval, over the noise band. Shares of idle time are shown in the
// table only, because near zero their ratios would stretch the common axis.
// Metrics without ratios are omitted too.
func forests(r *result.Report, client result.Client, columns []column) []chart {
	columns = slices.DeleteFunc(slices.Clone(columns),
		func(c column) bool { return c.metric == result.IdleShare || result.Absolute(c.metric) })
	ratios := logAxis(ratioEnds(r, client, columns), 0.8, 1.25, forestLeft, forestRight)
	var all []chart
	for _, c := range columns {
		all = append(all, forest(r, c, ratios))
	}
	return all
}

// ratioEnds returns the values that the common axis must include.
func ratioEnds(r *result.Report, client result.Client, columns []column) []float64 {
	var all []float64
	for _, c := range columns {
		for _, p := range pathsOf(r, client) {
			if s := c.at(r, p); s != nil && s.Rounds > 0 && s.Baseline != "" {
				low, high := s.Interval()
				all = append(all, s.RatioLow, s.RatioHigh, low, high)
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
	if s == nil || s.Rounds == 0 || s.Baseline == "" {
		ch.label(forestWidth, y+4, "end", "figure quiet", "no valid round")
		return
	}
	class := "mark " + verdictClass(judge(s))
	ch.line(x.at(s.RatioLow), y, x.at(s.RatioHigh), y, class)
	for _, end := range []float64{s.RatioLow, s.RatioHigh} {
		ch.line(x.at(end), y-4, x.at(end), y+4, class)
	}
	low, high := s.Interval()
	if s.Sessions > 1 {
		ch.line(x.at(low), y, x.at(high), y, class+" thin")
	}
	hint := fmt.Sprintf("%s: %s × %s, 95 %% %s to %s; %s %s", path, formatRatio(s.Ratio), s.Baseline,
		formatRatio(low), formatRatio(high), c.scale.format(s.Value), c.scale.label)
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

// forestWords describes the drawing in words, for screen readers.
func forestWords(ch chart) string {
	text := ch.Title + ", ratio to the baseline."
	for _, d := range ch.Dots {
		text += " " + d.Hint + "."
	}
	return text
}

func verdictClass(v verdict) string {
	switch v {
	case better:
		return "better"
	case worse:
		return "worse"
	case same:
		return "same"
	}
	return "base"
}

func direction(m result.Metric) string {
	if result.Units[m].Better == result.Higher {
		return "more is better"
	}
	return "less is better"
}
