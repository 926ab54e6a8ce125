package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// Options says how to write for a terminal.
type Options struct {
	// Color paints better green, worse red and indistinguishable dim.
	Color bool
	// Width is the greatest width of a line; 0 means 120.
	Width int
	// Full names the file that holds the full report, if there is one.
	Full string
}

// gap stands between the groups of a row; a note may take its first place.
const gap = 2

// Table writes the report for a terminal: for each client a row per path,
// for each workload the figure and its ratio to the baseline with half the
// width of the ratio's 95 % interval. On the baseline's own row that is the
// A/A interval. What has no ratio stands beside its worst round.
func Table(w io.Writer, r *result.Report, o Options) error {
	if o.Width == 0 {
		o.Width = 120
	}
	out := bufio.NewWriter(w)
	t := table{out: out, r: r, o: o, base: baselineOf(r)}
	t.heading()
	for _, s := range disturbances(r) {
		t.line("beware: ", s)
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

// line writes the parts without trailing blanks.
func (t table) line(parts ...string) {
	t.out.WriteString(strings.TrimRight(strings.Join(parts, ""), " ") + "\n")
}

// heading says what was measured, where and how finely.
func (t table) heading() {
	left := strings.Join([]string{t.r.Suite, kernel(t.r.Host.Kernel), plural(t.r.Host.CPUs, "CPU"),
		plural(t.r.Rounds, "round"), fmt.Sprint("seed ", t.r.Seed)}, " · ")
	var columns []column
	for _, c := range clientsOf(t.r) {
		columns = append(columns, headColumns(t.r, c)...)
	}
	right := "A/A noise floor unknown: it takes two valid rounds"
	switch floor, found := floorOf(t.r, columns); {
	case len(columns) > 0 && !slices.ContainsFunc(columns, func(c column) bool { return !result.Absolute(c.metric) }):
		right = "no ratios" // no noise that they could be held against
	case found && floor > 1:
		right = "A/A noise floor over 100 %: make more rounds, or longer ones"
	case found:
		right = "A/A noise floor ±" + percent(floor)
	}
	t.line(left, strings.Repeat(" ", max(2, min(t.o.Width, 88)-width(left)-width(right))), right)
}

func kernel(release string) string {
	return "Linux " + strings.TrimPrefix(release, "Linux ")
}

// client writes the blocks of one client, as many as the width asks for.
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

// losses tells what share of the datagrams did not arrive, without which a
// packet rate says little.
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
		t.line("lost of ", workloadTitle(col.workload), byTool(col.tool), ": ", strings.Join(parts, ", "))
	}
}

// block writes one heading and a row per path.
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

// unavailable lists the paths that this host cannot build.
func (t table) unavailable() {
	if len(t.r.Unavailable) == 0 {
		return
	}
	t.line()
	for _, u := range t.r.Unavailable {
		t.line("not on this host: ", u.Path, ": ", u.Reason)
	}
}

// legend explains the marks and accounts for what was thrown out.
func (t table) legend() {
	thrown := thrownOut(t.r)
	total := 0
	for _, o := range thrown {
		total += o.runs
	}
	t.line()
	parts := []string{fmt.Sprint("! rounds thrown out: ", total)}
	if t.base != "" {
		parts = append([]string{"≈ cannot be told from " + t.base}, parts...)
	}
	if t.o.Full != "" {
		parts = append(parts, "full report: "+t.o.Full)
	}
	t.line(strings.Join(parts, "     "))
	for i, o := range thrown {
		if i == 6 {
			t.line(fmt.Sprintf("  and %d more; the full report has them all", len(thrown)-i))
			break
		}
		t.line("  ", o.String())
	}
	for _, s := range t.r.Summary {
		if adrift(&s) {
			t.line(fmt.Sprintf("  beware: %s drifted within the rounds (%s, %s, %s: second half %.2f to %.2f × first)",
				s.Path, workloadTitle(s.Workload), metricTitle(s.Metric), clientTitle(s.Client), s.RatioLow, s.RatioHigh))
		}
	}
	for _, s := range crossChecks(t.r) {
		t.line("  cross-check: ", s)
	}
	for _, o := range noted(t.r) {
		t.line("  ", o.String())
	}
}
