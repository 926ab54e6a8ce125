package report

import (
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// comparison is a published figure with the measured one.
type comparison struct {
	result.Published
	What, Where        string
	Theirs, TheirRatio string
	Ours, OurRatio     string
}

// comparisons returns every published figure with the measured one. The published
// ratio is to the baseline of the same source.
func comparisons(r *result.Report) []comparison {
	var all []comparison
	for _, p := range r.Published {
		b := comparison{
			Published: p, Ours: "not measured",
			What:   workloadTitle(p.Workload) + ", " + metricTitle(p.Metric),
			Where:  clientTitle(p.Client),
			Theirs: writeFigure(p.Metric, p.Value), TheirRatio: theirRatio(r, p),
		}
		if s := oursFor(r, p); s != nil && s.Rounds > 0 {
			b.Ours = writeFigure(p.Metric, s.Value)
			b.OurRatio = ratioWithMargin(s)
		}
		all = append(all, b)
	}
	return all
}

// ratioWithMargin writes a ratio with its interval, and whether it can be distinguished
// from 1; "" if there is no ratio.
func ratioWithMargin(s *result.Summary) string {
	cell := makeCell(s, scale{})
	if s.Baseline == "" {
		return ""
	}
	return strings.TrimSpace(strings.TrimSpace(cell.mark+" "+cell.ratio) + " " + cell.margin)
}

// oursFor returns the figure of Fairlead's generator for a published one, or nil.
func oursFor(r *result.Report, p result.Published) *result.Summary {
	for _, tool := range []string{"fairlead", ""} {
		c := result.Case{Path: p.Path, Client: p.Client, Workload: p.Workload, Tool: tool}
		if s := find(r, c, p.Metric); s != nil {
			return s
		}
	}
	return nil
}

func theirRatio(r *result.Report, p result.Published) string {
	base := p
	base.Path = baselineOf(r)
	at := slices.IndexFunc(r.Published, func(q result.Published) bool {
		return q.Source == base.Source && q.Path == base.Path && q.Client == base.Client &&
			q.Workload == base.Workload && q.Metric == base.Metric
	})
	if at < 0 || r.Published[at].Value == 0 {
		return ""
	}
	return formatRatio(p.Value / r.Published[at].Value)
}

// writeFigure writes a lone figure with its unit.
func writeFigure(m result.Metric, v float64) string {
	s := scaleFor(m, []float64{v})
	if which, unit, found := strings.Cut(s.label, " "); found {
		return which + " " + s.format(v) + " " + unit
	}
	return s.format(v) + " " + s.label
}

// published writes published figures with the measured ones, by source and figure.
func (t table) published() {
	rows := [][]string{{"", "published", "× " + t.base, "measured", "× " + t.base}}
	source, figure := "", ""
	for _, b := range byFigure(comparisons(t.r)) {
		if b.Source != source {
			source, figure = b.Source, ""
			rows = append(rows, []string{"published figures: " + source})
		}
		if of := b.What + ", " + b.Where; of != figure {
			figure = of
			rows = append(rows, []string{figure})
		}
		rows = append(rows, []string{"  " + b.Path, b.Theirs, b.TheirRatio, b.Ours, b.OurRatio})
	}
	if len(rows) > 1 {
		t.line()
		t.aligned(rows, "lrrrr")
	}
}

// byFigure sorts comparisons so that those of a source and figure follow each other.
func byFigure(all []comparison) []comparison {
	var sorted []comparison
	for len(all) > 0 {
		first := all[0]
		is := func(b comparison) bool {
			return b.Source == first.Source && b.What == first.What && b.Where == first.Where
		}
		for _, b := range all {
			if is(b) {
				sorted = append(sorted, b)
			}
		}
		all = slices.DeleteFunc(all, is)
	}
	return sorted
}

// aligned writes rows in columns: l is left-aligned, r right-aligned. A row with
// one part is a heading and does not widen its column.
func (t table) aligned(rows [][]string, sides string) {
	widths := make([]int, len(sides))
	for _, row := range rows {
		for i, part := range row {
			if len(row) > 1 {
				widths[i] = max(widths[i], width(part))
			}
		}
	}
	for _, row := range rows {
		text := ""
		for i, part := range row {
			if sides[i] == 'r' {
				text += padLeft(part, widths[i]) + "  "
			} else {
				text += padRight(part, widths[i]) + "  "
			}
		}
		t.line(text)
	}
}
