package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"time"

	"fairlead/internal/lab/history"
	"fairlead/internal/lab/result"
)

// Course is one ratio over the entries of a history that have the same setup.
type Course struct {
	result.Case
	Metric   result.Metric
	Baseline string
	Setup    history.Setup
	// Points are in the order of the entries.
	Points []CoursePoint
	// Verdict is steady, better or worse, or empty for too few entries. Since is the time
	// of the first entry after a change.
	Verdict history.Verdict
	Since   string `json:",omitempty"`
	// Median is that of all ratios. Low and High are the interval in which the ratio was
	// expected from earlier entries.
	Median, Low, High float64

	rows  []*result.Summary
	since int
}

// CoursePoint is the ratio in one entry, with the interval that decides whether it is
// distinguishable.
type CoursePoint struct {
	Started, Kernel, Fairlead string
	Ratio, Low, High          float64
}

// Courses returns the ratios of the report's main figures in the entries of each setup. If
// suites or paths are given, only these are included.
func Courses(groups []history.Group, suites, paths []string) []Course {
	var all []Course
	for _, g := range groups {
		if len(suites) > 0 && !slices.Contains(suites, g.Setup.Suite) {
			continue
		}
		for _, c := range figuresOf(g) {
			if len(paths) > 0 && !slices.Contains(paths, c.Path) {
				continue
			}
			all = append(all, courseOf(g, c))
		}
	}
	return all
}

// figure is a case and a metric.
type figure struct {
	result.Case
	metric result.Metric
}

// figuresOf lists the main figures of all entries, those of the last entry first.
func figuresOf(g history.Group) []figure {
	var all []figure
	for _, e := range slices.Backward(g.Entries) {
		r := &e.Report
		for _, client := range clientsOf(r) {
			for _, col := range headColumns(r, client) {
				for _, path := range pathsOf(r, client) {
					k := result.Case{Path: path, Client: client, Workload: col.workload, Tool: col.tool}
					f := figure{k, col.metric}
					s := find(r, f.Case, f.metric)
					if s != nil && s.Baseline != "" && path != s.Baseline && s.Ratio > 0 && !slices.Contains(all, f) {
						all = append(all, f)
					}
				}
			}
		}
	}
	return all
}

func courseOf(g history.Group, f figure) Course {
	c := Course{Case: f.Case, Metric: f.metric, Setup: g.Setup, rows: g.Rows(f.Case, f.metric)}
	t := history.TrendOf(c.rows, f.metric)
	c.Verdict, c.since, c.Median, c.Low, c.High = t.Verdict, t.Since, t.Median, t.Low, t.High
	if t.Since >= 0 {
		c.Since = g.Entries[t.Since].Report.Started
	}
	for i, row := range c.rows {
		if row == nil {
			continue
		}
		h := g.Entries[i].Report.Host
		low, high := row.Interval()
		c.Baseline = row.Baseline
		c.Points = append(c.Points, CoursePoint{g.Entries[i].Report.Started, h.Kernel, h.Fairlead, row.Ratio, low,
			high})
	}
	return c
}

// title names the figure.
func (c Course) title() string {
	return workloadTitle(c.Workload) + byTool(c.Tool) + ", " + metricTitle(c.Metric)
}

// newest is how many entries fit beside the figures.
const newest = 40

// HistoryTable writes the history for a terminal: per setup one line per ratio, then the
// entries with their kernels and versions.
func HistoryTable(w io.Writer, groups []history.Group, all []Course, o Options) error {
	t := table{out: bufio.NewWriter(w), o: o}
	for _, g := range groups {
		var of []Course
		for _, c := range all {
			if c.Setup == g.Setup {
				of = append(of, c)
			}
		}
		if len(of) > 0 {
			t.history(g, of)
		}
	}
	t.line("ratios to the baseline; the interval is where 99 % of new entries are expected from the earlier ones")
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("write history: %w", err)
	}
	return nil
}

// history writes one setup.
func (t table) history(g history.Group, all []Course) {
	first := max(0, len(g.Entries)-newest)
	t.line(fmt.Sprintf("%s · %s · %s · windows of %g s · %s", g.Setup.Suite, g.Setup.Machines, g.Setup.Family,
		g.Setup.Duration,
		entries(len(g.Entries))))
	for _, client := range result.Clients {
		rows := [][]string{{clientTitle(client), "", "×", "median", "last", "expected", "history", ""}}
		for _, c := range all {
			if c.Client == client {
				rows = append(rows, c.row(g, first, t.o.Color))
			}
		}
		if len(rows) > 1 {
			t.line()
			t.aligned(rows, "lllrrlll")
		}
	}
	t.line()
	rows := [][]string{{"entry", "started", "kernel", "fairlead", "measured"}}
	for i, e := range g.Entries[first:] {
		r := &e.Report
		rows = append(rows, []string{fmt.Sprint(first + i + 1), day(r.Started), r.Host.Kernel, r.Host.Fairlead,
			measured(r) + fmt.Sprint(", seed ", r.Seed)})
	}
	t.aligned(rows, "rllll")
	t.line()
}

// row is a line of the table.
func (c Course) row(g history.Group, first int, color bool) []string {
	last := c.Points[len(c.Points)-1]
	expected := ""
	if c.High > 0 {
		expected = fmt.Sprintf("%.3f to %.3f", c.Low, c.High)
	}
	text := c.words(g)
	if color {
		text = paint(verdicts[c.Verdict], text)
	}
	return []string{c.title(), c.Path, c.Baseline, fmt.Sprintf("%.3f", c.Median), fmt.Sprintf("%.3f", last.Ratio),
		expected, history.Blocks(c.rows[first:]), text}
}

// verdicts are the table's verdicts for those of a history.
var verdicts = map[history.Verdict]verdict{history.Steady: same, history.Better: better, history.Worse: worse}

// words describes the verdict: when the ratio changed, and what else changed then.
func (c Course) words(g history.Group) string {
	switch c.Verdict {
	case history.Unknown:
		return "too few entries"
	case history.Steady:
		return "≈"
	}
	text := fmt.Sprintf("%s since entry %d, %s", c.Verdict, c.since+1, day(c.Since))
	return text + changedWith(g, c.since)
}

// changedWith returns what else changed with an entry; "" if kernel and version did not.
func changedWith(g history.Group, i int) string {
	if i == 0 {
		return ""
	}
	text := ""
	before, now := g.Entries[i-1].Report.Host, g.Entries[i].Report.Host
	if before.Kernel != now.Kernel {
		text += fmt.Sprintf(", kernel %s → %s", before.Kernel, now.Kernel)
	}
	if before.Fairlead != now.Fairlead {
		text += fmt.Sprintf(", fairlead %s → %s", before.Fairlead, now.Fairlead)
	}
	return text
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprint(n, " entries")
}

// day shortens a time to the minute.
func day(started string) string {
	at, err := time.Parse(time.RFC3339, started)
	if err != nil {
		return started
	}
	return at.Format("2006-01-02 15:04")
}

// HistoryRow returns the cells of a ratio: title, path, baseline, median, last, expected, the newest entries as a row
// of blocks, and the verdict in words. The course must have the group's setup.
func HistoryRow(g history.Group, c Course) []string {
	return c.row(g, max(0, len(g.Entries)-newest), false)
}
