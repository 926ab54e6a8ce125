package report

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// Comparison is what changed between two sessions.
type Comparison struct {
	// Warnings name what else differs, so that a change may not be due to
	// what the reader thinks of.
	Warnings []string
	Changes  []Change
}

// Change is one figure of one case in both sessions.
type Change struct {
	result.Case
	Metric   result.Metric
	Old, New float64
	// Ratio is new over old, the medians over rounds, with a bootstrap 95 %
	// interval. The sessions were not interleaved, so rounds are not paired.
	Ratio, Low, High float64
	// Verdict is faster, slower or ≈. It is ≈ when the interval holds one, the
	// ratio lies within the noise floor of either session, or a side has
	// fewer than four runs: three against three cannot differ at 95 %, in
	// whatever order they fall. It is empty, and there is no ratio, for a metric
	// of which nothing is the best (result.Absolute).
	Verdict string
}

// Compare holds every figure that both sessions have against each other.
// Loss is compared as packets sent for each that arrives, as in the stats
// package.
func Compare(old, recent *result.Report, seed uint64) Comparison {
	c := Comparison{Warnings: differences(old, recent)}
	for i := range recent.Summary {
		now := &recent.Summary[i]
		before := find(old, now.Case, now.Metric)
		if before == nil || before.Rounds == 0 || now.Rounds == 0 {
			continue
		}
		c.Changes = append(c.Changes, change(old, recent, before, now, seed))
	}
	slices.SortStableFunc(c.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(rank(clientOrder, a.Client), rank(clientOrder, b.Client)),
			compareWorkloads(a.Workload, b.Workload), cmp.Compare(a.Tool, b.Tool),
			cmp.Compare(rank(metricOrder, a.Metric), rank(metricOrder, b.Metric)),
			cmp.Compare(rank(recent.Paths, a.Path), rank(recent.Paths, b.Path)))
	})
	return c
}

func change(old, recent *result.Report, before, now *result.Summary, seed uint64) Change {
	c := Change{Case: now.Case, Metric: now.Metric, Old: before.Value, New: now.Value}
	if result.Absolute(now.Metric) {
		return c
	}
	c.Verdict = "≈"
	a, b := stats.Comparable(old.Runs, now.Case, now.Metric), stats.Comparable(recent.Runs, now.Case, now.Metric)
	if len(a) == 0 || len(b) == 0 {
		return c
	}
	c.Ratio, c.Low, c.High = stats.MedianRatio(a, b, seed)
	told := (c.Low > 1 || c.High < 1) && min(len(a), len(b)) > 3 &&
		math.Abs(math.Log(c.Ratio)) > math.Log1p(max(before.Noise, now.Noise))
	switch {
	case told && c.Ratio > 1 == (now.Better == result.Higher):
		c.Verdict = "faster"
	case told:
		c.Verdict = "slower"
	}
	return c
}

// differences lists what else changed between the sessions.
func differences(old, recent *result.Report) []string {
	var all []string
	for _, d := range []struct{ what, old, recent string }{
		{"suite", old.Suite, recent.Suite},
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
		t.line("beware: ", warning)
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

// changes writes one table a client.
func (t table) changes(all []Change) {
	for _, client := range clientsIn(all) {
		rows := [][]string{{clientTitle(client), "", "before", "now", "now/before", "95 %", ""}}
		for _, c := range all {
			if c.Client == client {
				rows = append(rows, c.row(t.o.Color))
			}
		}
		t.aligned(rows, "llrrrll")
		t.line()
	}
	t.line("≈ within the interval or the noise floor of either session")
}

func (c Change) row(color bool) []string {
	s := scaleFor(c.Metric, []float64{c.Old, c.New})
	ratio, interval := none, ""
	if c.Ratio > 0 {
		ratio, interval = fmt.Sprintf("%.3f", c.Ratio), fmt.Sprintf("%.3f to %.3f", c.Low, c.High)
	}
	mark := c.Verdict
	if color {
		mark = paint(map[string]verdict{"≈": same, "faster": better, "slower": worse}[c.Verdict], mark)
	}
	what := workloadTitle(c.Workload) + byTool(c.Tool) + ", " + metricTitle(c.Metric)
	return []string{what, c.Path, s.format(c.Old), s.format(c.New) + " " + unitOf(s), ratio, interval, mark}
}

// unitOf is the unit without the percentile that the metric's name holds.
func unitOf(s scale) string {
	return s.label[strings.LastIndex(s.label, " ")+1:]
}

func clientsIn(all []Change) []result.Client {
	var clients []result.Client
	for _, c := range all {
		if !slices.Contains(clients, c.Client) {
			clients = append(clients, c.Client)
		}
	}
	return clients
}
