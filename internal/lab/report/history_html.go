package report

import (
	"fmt"
	"html/template"
	"io"

	"fairlead/internal/escape"
	"fairlead/internal/lab/history"
	"fairlead/internal/lab/result"
)

// historyPage is the data of the template.
type historyPage struct{ Sections []historySection }

// historySection is one setup.
type historySection struct {
	Setup  history.Setup
	Charts []chart
	// Entries has one row per entry: number, start, kernel, version, how often measured.
	Entries [][]string
}

// HistoryHTML writes the history as one page that needs no other file.
func HistoryHTML(w io.Writer, groups []history.Group, all []Course) error {
	page, err := template.New("").Funcs(functions(&result.Report{})).ParseFS(templates, "template/*")
	if err != nil {
		return fmt.Errorf("read page template: %w", err)
	}
	var p historyPage
	for i, g := range groups {
		s := historySection{Setup: g.Setup}
		for _, c := range all {
			if c.Setup == g.Setup {
				ch := courseChart(g, c)
				ch.ID = fmt.Sprintf("history-%d-%d", i, len(s.Charts))
				s.Charts = append(s.Charts, ch)
			}
		}
		for n, e := range g.Entries {
			r := &e.Report
			s.Entries = append(s.Entries, []string{fmt.Sprint(n + 1), day(r.Started), r.Host.Kernel, r.Host.Fairlead,
				measured(r)})
		}
		if len(s.Charts) > 0 {
			p.Sections = append(p.Sections, s)
		}
	}
	if err := page.ExecuteTemplate(escape.JSON(w), "history.html", p); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// courseChart draws one ratio: a point with its interval per entry, the expected range, and
// a line where the kernel or the version changed.
func courseChart(g history.Group, c Course) chart {
	ch := chart{Title: c.Path + ", " + c.title(), Unit: "× " + c.Baseline,
		Caption: clientTitle(c.Client) + ", " + direction(c.Metric), W: plotWidth, H: plotBottom + 40}
	var values []float64
	for _, p := range c.Points {
		values = append(values, p.Low, p.High)
	}
	y := logAxis(values, c.Median*0.95, c.Median*1.05, plotBottom-20, plotTop)
	last := max(1, len(g.Entries)-1)
	x := func(i int) float64 { return plotLeft + 12 + (plotRight-plotLeft-24)*float64(i)/float64(last) }
	if c.High > 0 {
		top := y.at(c.High)
		ch.Back = append(ch.Back, rectMark{plotLeft, top, plotRight - plotLeft, y.at(c.Low) - top, "noise",
			fmt.Sprintf("expected: %.3f to %.3f", c.Low, c.High)})
	}
	ch.grid(y.ticks(), y.at, 1)
	for i := range g.Entries {
		if changedWith(g, i) != "" {
			middle := (x(i-1) + x(i)) / 2
			ch.line(middle, plotTop, middle, plotBottom, "one")
		}
		if i%(1+len(g.Entries)/12) == 0 {
			ch.label(x(i), plotBottom+16, "middle", "tick", fmt.Sprint(i+1))
		}
	}
	ch.label((plotLeft+plotRight)/2, plotBottom+34, "middle", "tick", "entry")
	c.draw(&ch, g, x, y)
	return ch
}

// draw draws the points.
func (c Course) draw(ch *chart, g history.Group, x func(int) float64, y axis) {
	ch.Text = ch.Title + ", ratio to " + c.Baseline + " by entry: " + c.words(g) + "."
	class := verdictClass(verdicts[c.Verdict])
	var xs, ys []float64
	for i, row := range c.rows {
		if row == nil {
			continue
		}
		h, interval := g.Entries[i].Report.Host, "no interval"
		xs, ys = append(xs, x(i)), append(ys, y.at(row.Ratio))
		if low, high := row.Interval(); low > 0 {
			interval = fmt.Sprintf("95 %% %.3f to %.3f", low, high)
			ch.line(x(i), y.at(low), x(i), y.at(high), "mark thin p1")
		}
		mark := "point p1"
		if c.since >= 0 && i >= c.since {
			mark = "mark " + class
		}
		ch.Dots = append(ch.Dots, dotMark{X: x(i), Y: y.at(row.Ratio), R: 3, Class: mark,
			Hint: fmt.Sprintf("entry %d, %s: %.3f, %s; kernel %s, fairlead %s", i+1, day(g.Entries[i].Report.Started),
				row.Ratio, interval, h.Kernel, h.Fairlead)})
	}
	ch.curve(xs, ys, "curve p1")
	if len(ys) > 0 {
		ch.label(plotRight+6, ys[len(ys)-1]+4, "start", "end "+class, formatRatio(c.Points[len(c.Points)-1].Ratio))
	}
}
