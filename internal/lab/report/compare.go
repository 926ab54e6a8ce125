package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// Comparison is what changed between two sessions.
type Comparison struct {
	// Warnings name other differences between the sessions, which may be the cause
	// of a change.
	Warnings []string
	Changes  []Change
}

// Change is one figure of one case in both sessions.
type Change struct {
	result.Case
	Metric   result.Metric
	Old, New float64
	// OldRatio and NewRatio are the ratios to the baseline; 0 for the baseline
	// itself and if there is none.
	OldRatio, NewRatio float64
	// Ratio is NewRatio over OldRatio with its 95 % interval, so a figure that
	// changed as much as the baseline's has not changed. Between sessions without
	// a baseline it is New over Old. Both ends of an interval are 0 if the rounds differ
	// too much to give one.
	Ratio, Low, High float64
	// SessionLow and SessionHigh are the interval with the session component; both are 0
	// unless both reports have several sessions.
	SessionLow, SessionHigh float64
	// Verdict is faster, slower or ≈. It is empty, and there is no ratio, for the
	// baseline itself and for a metric whose best value is zero (result.Absolute).
	Verdict string
}

// Compare compares every figure that both sessions have, by the ratios to the
// baseline. Loss is compared as packets sent per packet that arrives, as in the
// stats package.
func Compare(old, recent *result.Report, seed uint64) Comparison {
	c := Comparison{Warnings: append(differences(old, recent), baselinesDiffer(old, recent)...)}
	base := baselineOf(recent)
	var changes []stats.Change
	if base == baselineOf(old) && base != "" {
		changes = stats.Changes(old.Runs, recent.Runs, base, seed)
	}
	for i := range recent.Summary {
		now := &recent.Summary[i]
		before := find(old, now.Case, now.Metric)
		if before == nil || before.Rounds == 0 || now.Rounds == 0 {
			continue
		}
		change := Change{Case: now.Case, Metric: now.Metric, Old: before.Value, New: now.Value}
		switch at := slices.IndexFunc(changes,
			func(s stats.Change) bool { return s.Case == now.Case && s.Metric == now.Metric }); {
		case at >= 0:
			change.compared(changes[at])
		case base == "" && baselineOf(old) == "" && !result.Absolute(now.Metric):
			change.bare(old, recent, seed)
		}
		c.Changes = append(c.Changes, change)
	}
	slices.SortStableFunc(c.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(rank(result.Clients, a.Client), rank(result.Clients, b.Client)),
			compareWorkloads(a.Workload, b.Workload), cmp.Compare(a.Tool, b.Tool),
			cmp.Compare(rank(metricOrder, a.Metric), rank(metricOrder, b.Metric)),
			cmp.Compare(rank(recent.Paths, a.Path), rank(recent.Paths, b.Path)))
	})
	return c
}

// compared sets the change of the ratio to the baseline.
func (c *Change) compared(s stats.Change) {
	c.OldRatio, c.NewRatio = s.Before, s.After
	c.Ratio = s.Ratio
	c.Low, c.High = given(s.Low, s.High)
	c.SessionLow, c.SessionHigh = given(s.SessionLow, s.SessionHigh)
	c.judge(s.Distinguishable())
}

// given returns an interval, or zeros if it is too wide to say anything.
func given(low, high float64) (float64, float64) {
	if high > result.WidestInterval*low {
		return 0, 0
	}
	return low, high
}

// bare compares the absolute figures of sessions without a baseline.
func (c *Change) bare(old, recent *result.Report, seed uint64) {
	a, b := stats.Comparable(old.Runs, c.Case, c.Metric), stats.Comparable(recent.Runs, c.Case, c.Metric)
	if len(a) == 0 || len(b) == 0 {
		return
	}
	c.Ratio, c.Low, c.High = stats.MedianRatio(a, b, seed)
	c.judge((c.Low > 1 || c.High < 1) && min(len(a), len(b)) > 3)
}

// judge sets the verdict.
func (c *Change) judge(distinguishable bool) {
	switch {
	case !distinguishable:
		c.Verdict = "≈"
	case c.Ratio > 1 == (result.Units[c.Metric].Better == result.Higher):
		c.Verdict = "faster"
	default:
		c.Verdict = "slower"
	}
}

// baselinesDiffer returns warnings if the sessions have no common baseline.
func baselinesDiffer(old, recent *result.Report) []string {
	before, now := baselineOf(old), baselineOf(recent)
	switch {
	case len(old.Summary) == 0 || len(recent.Summary) == 0:
		return nil
	case before != now:
		return []string{fmt.Sprintf("the baseline differs: %s before, %s now; ratios to different baselines cannot be compared",
			cmp.Or(before, "none"), cmp.Or(now, "none"))}
	case now == "":
		return []string{"there is no baseline: absolute figures are compared, and other load on the machine changes them too"}
	}
	return nil
}

// differences lists other changes between the sessions.
func differences(old, recent *result.Report) []string {
	var all []string
	for _, d := range []struct{ what, old, recent string }{
		{"suite", old.Suite, recent.Suite},
		{"address family", old.Family.String(), recent.Family.String()},
		{"network conditions (netem)", old.Netem.String(), recent.Netem.String()},
		{"kernel", old.Host.Kernel, recent.Host.Kernel},
		{"CPU model", old.Host.CPUModel, recent.Host.CPUModel},
		{"number of CPUs", fmt.Sprint(old.Host.CPUs), fmt.Sprint(recent.Host.CPUs)},
		{"memory", fmt.Sprint(old.Host.Memory), fmt.Sprint(recent.Host.Memory)},
		{"duration", fmt.Sprint(old.Duration, " s"), fmt.Sprint(recent.Duration, " s")},
	} {
		if d.old != d.recent {
			all = append(all, fmt.Sprintf("%s differs: %s before, %s now", d.what, d.old, d.recent))
		}
	}
	return append(all, settingsDiffer(old.Host.Settings, recent.Host.Settings)...)
}

func settingsDiffer(old, recent map[string]string) []string {
	var all []string
	for name, now := range recent {
		if before, ok := old[name]; ok && before != now {
			all = append(all, fmt.Sprintf("setting %s differs: %s before, %s now", name, before, now))
		}
	}
	slices.Sort(all)
	return all
}

// CompareTable writes a comparison for a terminal.
func CompareTable(w io.Writer, c Comparison, o Options) error {
	t := table{out: bufio.NewWriter(w), o: o}
	for _, warning := range c.Warnings {
		t.line("warning: ", warning)
	}
	if len(c.Warnings) > 0 {
		t.line()
	}
	if len(c.Changes) == 0 {
		t.line("the two sessions have no figure in common")
	} else {
		t.changes(c.Changes)
	}
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// changes writes one table per client.
func (t table) changes(all []Change) {
	sessions := slices.ContainsFunc(all, func(c Change) bool { return c.SessionHigh > 0 })
	for _, client := range result.Distinct(all, func(c Change) result.Client { return c.Client }) {
		rows := [][]string{{clientTitle(client), "", "before", "ratio", "now", "ratio", "now/before", "95 %", ""}}
		sides := "llrrrrrll"
		if sessions {
			rows, sides = [][]string{slices.Insert(rows[0], 8, "95 % with sessions")}, "llrrrrrlll"
		}
		for _, c := range all {
			if c.Client == client {
				rows = append(rows, c.row(t.o.Color, sessions))
			}
		}
		t.aligned(rows, sides)
		t.line()
	}
	t.line("now/before compares the ratios to the baseline; ≈ not distinguishable: within the interval or the noise floor of one session")
	if sessions {
		t.line("the interval with sessions includes the differences between sessions, and decides whether a change is distinguishable")
	} else {
		t.line("no interval includes the differences between sessions: that needs two reports of `fairlead lab run --sessions`")
	}
}

func (c Change) row(color, sessions bool) []string {
	s := scaleFor(c.Metric, []float64{c.Old, c.New})
	ratio, interval := none, ""
	if c.Ratio > 0 {
		ratio, interval = fmt.Sprintf("%.3f", c.Ratio), none
	}
	if c.High > 0 {
		interval = fmt.Sprintf("%.3f to %.3f", c.Low, c.High)
	}
	mark := c.Verdict
	if color {
		mark = paint(map[string]verdict{"≈": same, "faster": better, "slower": worse}[c.Verdict], mark)
	}
	what := workloadTitle(c.Workload) + byTool(c.Tool) + ", " + metricTitle(c.Metric)
	cells := []string{what, c.Path, s.format(c.Old), ratioTo(c.OldRatio), s.format(c.New) + " " + unitOf(s),
		ratioTo(c.NewRatio), ratio, interval}
	if sessions {
		interval = ""
		if c.SessionHigh > 0 {
			interval = fmt.Sprintf("%.3f to %.3f", c.SessionLow, c.SessionHigh)
		}
		cells = append(cells, interval)
	}
	return append(cells, mark)
}

// ratioTo formats a ratio to the baseline, "" if there is none.
func ratioTo(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return formatRatio(ratio)
}

// unitOf is the unit without the percentile, which is part of the metric's title.
func unitOf(s scale) string {
	return s.label[strings.LastIndex(s.label, " ")+1:]
}
