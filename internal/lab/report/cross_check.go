package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// crossChecks returns one sentence for every figure where the intervals of another
// tool and of Fairlead's generator do not overlap, with the reason.
func crossChecks(r *result.Report) []string {
	var all []string
	for i := range r.Summary {
		theirs := &r.Summary[i]
		if result.IsOwn(theirs.Tool) || !compared(theirs) || !slices.Contains(checked, theirs.Metric) {
			continue
		}
		same := theirs.Case
		same.Tool = result.OwnTool
		ours := find(r, same, theirs.Metric)
		if ours == nil || !compared(ours) || overlap(ours, theirs) {
			continue
		}
		all = append(all,
			fmt.Sprintf("%s disagrees on %s, %s, %s: %s\u00a0%s with %s, %s\u00a0%s with Fairlead's generator; %s",
				theirs.Tool, theirs.Path, clientTitle(theirs.Client), workloadTitle(theirs.Workload),
				formatRatio(theirs.Ratio), formatMargin(theirs), theirs.Tool, formatRatio(ours.Ratio),
				formatMargin(ours),
				disagreement(r, ours, theirs)))
	}
	return all
}

// checked are the metrics on which two generators must agree. CPU time is not one
// of them, because it includes that of the generator.
var checked = []result.Metric{result.Throughput, result.LatencyP50, result.LatencyMean, result.ConnectionRate,
	result.TransactionRate, result.PacketRate, result.RequestRate}

// compared reports whether a row has a ratio with an interval.
func compared(s *result.Summary) bool {
	return s.Baseline != "" && s.Path != s.Baseline && s.HasInterval()
}

// overlap reports whether the intervals of two ratios overlap.
func overlap(a, b *result.Summary) bool {
	lowA, highA := a.Interval()
	lowB, highB := b.Interval()
	return lowA <= highB && lowB <= highA
}

// disagreement compares the two generators on the baseline. The slower one is the
// bottleneck there: it needs the time itself, on every path, and so hides part of
// what a path adds.
func disagreement(r *result.Report, ours, theirs *result.Summary) string {
	at := func(s *result.Summary) *result.Summary {
		c := s.Case
		c.Path = s.Baseline
		return find(r, c, s.Metric)
	}
	our, their := at(ours), at(theirs)
	if our == nil || their == nil || our.Rounds == 0 || their.Rounds == 0 {
		return "the reason is unknown"
	}
	sc := scaleFor(ours.Metric, []float64{our.Value, their.Value})
	figures := func(slow, fast *result.Summary) string {
		return fmt.Sprintf("%s is the bottleneck on %s (%s compared with %s %s%s), which hides part of the path's cost",
			generatorName(slow.Tool), slow.Path, sc.format(slow.Value), sc.format(fast.Value), unitOf(sc),
			saturation(r, slow.Case))
	}
	switch {
	case slower(their, our):
		return figures(their, our)
	case slower(our, their):
		return figures(our, their)
	}
	return "both have the same result on " + our.Path +
		", so they load the path differently: compare the number of streams and the size of writes"
}

func generatorName(tool string) string {
	if result.IsOwn(tool) {
		return "Fairlead's generator"
	}
	return tool
}

// slower reports whether a's figure is worse than b's and the intervals do not
// overlap.
func slower(a, b *result.Summary) bool {
	if a.Better == result.Higher {
		return a.High < b.Low
	}
	return a.Low > b.High
}

// saturated is the share of a CPU from which a process is reported as busy.
const saturated = 0.9

// saturation reports which side of a case's generator used nearly a whole CPU or
// more.
func saturation(r *result.Report, c result.Case) string {
	var client, server []float64
	for _, run := range r.Runs {
		if l := run.Ledger; run.Case == c && len(run.Invalid) == 0 && l != nil && l.Wall > 0 {
			client, server = append(client, l.Client/l.Wall), append(server, l.Server/l.Wall)
		}
	}
	var busy []string
	for _, side := range []struct {
		name   string
		shares []float64
	}{{"client", client}, {"server", server}} {
		if share := stats.Median(side.shares); share >= saturated {
			busy = append(busy, fmt.Sprintf("its %s uses %.0f\u00a0%% of a CPU", side.name,
				100*math.Round(100*share)/100))
		}
	}
	if len(busy) == 0 {
		return ""
	}
	return "; " + strings.Join(busy, ", ")
}
