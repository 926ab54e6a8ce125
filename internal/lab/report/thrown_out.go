package report

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// outcast is a case of which runs were thrown out or remarked on.
type outcast struct {
	result.Case
	runs    int
	reasons []string
}

// thrownOut collects the invalid runs case by case.
func thrownOut(r *result.Report) []outcast {
	return collect(r, func(run result.Run) []string { return run.Invalid })
}

// noted collects the runs with remarks in the same way.
func noted(r *result.Report) []outcast {
	return collect(r, func(run result.Run) []string { return run.Notes })
}

// collect groups the runs that have something said of them by case.
func collect(r *result.Report, said func(result.Run) []string) []outcast {
	var all []outcast
	for _, run := range r.Runs {
		if len(said(run)) == 0 {
			continue
		}
		at := slices.IndexFunc(all, func(o outcast) bool { return o.Case == run.Case })
		if at < 0 {
			at = len(all)
			all = append(all, outcast{Case: run.Case})
		}
		all[at].runs++
		for _, reason := range said(run) {
			if !slices.Contains(all[at].reasons, reason) {
				all[at].reasons = append(all[at].reasons, reason)
			}
		}
	}
	return all
}

func (o outcast) String() string {
	return fmt.Sprintf("%d × %s, %s%s, %s: %s", o.runs, o.Path, workloadTitle(o.Workload),
		byTool(o.Tool), clientTitle(o.Client), strings.Join(o.reasons, "; "))
}
