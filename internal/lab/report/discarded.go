package report

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// discard is a case with discarded runs, or with notes on its runs.
type discard struct {
	result.Case
	runs    int
	reasons []string
}

// discards collects the invalid runs per case.
func discards(r *result.Report) []discard {
	return collect(r, func(run result.Run) []string { return run.Invalid })
}

// lostRuns counts the runs that were discarded.
func lostRuns(r *result.Report) (n int) {
	for _, d := range discards(r) {
		n += d.runs
	}
	return n
}

// noted collects the runs with notes per case.
func noted(r *result.Report) []discard {
	return collect(r, func(run result.Run) []string { return run.Notes })
}

// collect groups the runs for which texts returns something by case.
func collect(r *result.Report, texts func(result.Run) []string) []discard {
	var all []discard
	for _, run := range r.Runs {
		if len(texts(run)) == 0 {
			continue
		}
		at := slices.IndexFunc(all, func(o discard) bool { return o.Case == run.Case })
		if at < 0 {
			at = len(all)
			all = append(all, discard{Case: run.Case})
		}
		all[at].runs++
		for _, reason := range texts(run) {
			if !slices.Contains(all[at].reasons, reason) {
				all[at].reasons = append(all[at].reasons, reason)
			}
		}
	}
	return all
}

func (o discard) String() string {
	return fmt.Sprintf("%d × %s, %s%s, %s: %s", o.runs, o.Path, workloadTitle(o.Workload),
		byTool(o.Tool), clientTitle(o.Client), strings.Join(o.reasons, "; "))
}
