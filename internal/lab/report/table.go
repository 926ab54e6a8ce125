package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"fairlead/internal/lab/result"
)

// Options are the options for a terminal.
type Options struct {
	// Color shows better in green, worse in red and not distinguishable dimmed.
	Color bool
	// Width is the greatest width of a line; 0 means 120.
	Width int
	// Full is the name of the file with the full report, "" if there is none.
	Full string
}

// gap is the number of columns between the groups of a row. A note may use the first
// of them.
const gap = 2

// Table writes the report for a terminal: first whether the session went well, then the
// answer in sentences, then per client one row per path, and per workload the figure
// and its ratio to the baseline with half the width of the ratio's 95 % interval. In the
// baseline's own row that is the A/A interval. A metric without ratios shows its worst
// round.
func Table(w io.Writer, r *result.Report, o Options) error {
	if o.Width == 0 {
		o.Width = 120
	}
	out := bufio.NewWriter(w)
	t := table{out: out, r: r, o: o, base: baselineOf(r)}
	t.paragraph(conclude(r).Text)
	for _, s := range answer(r) {
		t.paragraph(s)
	}
	t.line()
	t.heading()
	for _, s := range machineLines(r) {
		t.line(s)
	}
	for _, s := range disturbances(r) {
		t.line("warning: ", s)
	}
	for _, c := range clientsOf(r) {
		t.client(c)
	}
	t.steps()
	t.unavailable()
	t.published()
	t.legend()
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// table writes one report; errors stay in out until it is flushed.
type table struct {
	out  *bufio.Writer
	r    *result.Report
	o    Options
	base string
}

// line writes the parts without trailing spaces.
func (t table) line(parts ...string) {
	t.out.WriteString(strings.TrimRight(strings.Join(parts, ""), " ") + "\n")
}

// paragraph writes text in lines of the table's width; all but the first are indented.
func (t table) paragraph(text string) {
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) > t.o.Width:
			t.line(breakable(line))
			line = "  " + word
		default:
			line += " " + word
		}
	}
	t.line(breakable(line))
}

// breakable replaces spaces that must not be broken by plain ones, which every terminal
// and grep know.
func breakable(text string) string { return strings.ReplaceAll(text, "\u00a0", " ") }

// heading writes what was measured, where, and the noise floors of the compared columns.
func (t table) heading() {
	left, right := headline(t.r), "no ratios" // so there is no noise floor
	if t.base != "" || len(t.r.Summary) == 0 {
		right = "A/A noise floor " + cmp.Or(floors(t.r), "unknown: two valid rounds are needed")
	}
	t.line(left, strings.Repeat(" ", max(2, min(t.o.Width, 88)-width(left)-width(right))), right)
}

// measured writes how often each path was measured.
func measured(r *result.Report) string {
	if r.Sessions > 1 {
		return plural(r.Sessions, "session") + " of " + plural(r.Rounds, "round")
	}
	return plural(r.Rounds, "round")
}

func kernel(release string) string {
	return "Linux " + strings.TrimPrefix(release, "Linux ")
}

// client writes the table of one client, in as many blocks as the width requires.
func (t table) client(c result.Client) {
	paths := pathsOf(t.r, c)
	first := width(clientTitle(c))
	for _, p := range paths {
		first = max(first, width(p))
	}
	var block []group
	used := first
	for _, col := range headColumns(t.r, c) {
		g := t.group(col, paths)
		if len(block) > 0 && used+gap+g.width() > t.o.Width {
			t.block(c, first, paths, block)
			block, used = nil, first
		}
		block = append(block, g)
		used += gap + g.width()
	}
	t.block(c, first, paths, block)
	t.losses(c, paths)
}

// losses writes the share of lost datagrams per path, which readers need to judge
// a packet rate.
func (t table) losses(c result.Client, paths []string) {
	for _, col := range allColumns(t.r, c) {
		if col.metric != result.Loss {
			continue
		}
		var parts []string
		for _, p := range paths {
			if s := col.at(t.r, p); s != nil && s.Rounds > 0 {
				parts = append(parts, p+" "+percent(s.Value))
			}
		}
		t.line("loss of ", workloadTitle(col.workload), byTool(col.tool), ": ", strings.Join(parts, ", "))
	}
}

// block writes one heading and one row per path.
func (t table) block(c result.Client, first int, paths []string, groups []group) {
	titles, units := padRight(clientTitle(c), first+gap), padRight("path", first+gap)
	for _, g := range groups {
		titles += padRight(g.title, g.width()+gap)
		units += padRight(padLeft(g.unit, g.value)+" "+g.over, g.width()+gap)
	}
	t.line()
	t.line(titles)
	t.line(units)
	for i, p := range paths {
		row := padRight(p, first+gap)
		for _, g := range groups {
			row += g.cells[i].write(g, t.o.Color)
		}
		t.line(row)
	}
}

// unavailable lists the paths and workloads that this host cannot build or measure.
func (t table) unavailable() {
	if len(t.r.Unavailable) == 0 {
		return
	}
	t.line()
	for _, u := range t.r.Unavailable {
		t.line("not available on this host: ", u.Path, u.Workload, ": ", u.Reason)
	}
}

// legend explains the marks and lists what was discarded.
func (t table) legend() {
	discarded := discards(t.r)
	t.line()
	parts := []string{fmt.Sprint("! discarded rounds: ", lostRuns(t.r))}
	if t.base != "" {
		parts = append([]string{"≈ not distinguishable from " + t.base}, parts...)
	}
	if t.o.Full != "" {
		parts = append(parts, "full report: "+t.o.Full)
	}
	t.line(strings.Join(parts, "     "))
	if t.r.Sessions > 1 {
		t.line("± half of the 95 % interval: first within the sessions, second with the differences between sessions")
	}
	for _, s := range lacking(t.r) {
		t.line(s)
	}
	for i, o := range discarded {
		if i == 6 {
			t.line(fmt.Sprintf("  and %d more: see the full report", len(discarded)-i))
			break
		}
		t.line("  ", o.String())
	}
	for _, s := range t.r.Summary {
		if drifted(&s) {
			t.line(fmt.Sprintf("  warning: %s drifted within the rounds (%s, %s, %s: the second half is %.2f to %.2f × the first)",
				s.Path, workloadTitle(s.Workload), metricTitle(s.Metric), clientTitle(s.Client), s.RatioLow,
				s.RatioHigh))
		}
	}
	for _, s := range crossChecks(t.r) {
		t.line("  cross-check: ", s)
	}
	for _, o := range noted(t.r) {
		t.line("  ", o.String())
	}
}
