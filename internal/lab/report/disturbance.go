package report

import (
	"fmt"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// notable is the share of the CPU time from which the load of other processes is
// reported.
const notable = 0.05

// disturbances returns sentences about other use of the machine during the
// session.
func disturbances(r *result.Report) []string {
	var all []string
	for _, pid := range r.Laboratories {
		all = append(all,
			fmt.Sprintf("another laboratory (PID %d) ran at the same time; each measured the load of the other", pid))
	}
	shared := ""
	if r.Shared {
		shared = ", and no run was discarded because of it (--shared)"
	}
	if share := otherShare(r); share >= notable || disturbed(r) > 0 && share > 0 {
		all = append(all, fmt.Sprintf("other processes used %s of the CPU time in the median run%s; figures of CPU time exclude it, "+
			"all other figures are affected%s", roughly(share), busiest(r), shared))
	}
	if share := medianShare(r, func(l *result.Ledger) float64 { return l.Steal }); share >= notable {
		all = append(all, fmt.Sprintf("the hypervisor took %s of the CPU time in the median run; figures of CPU time exclude it, "+
			"all other figures are affected%s", roughly(share), shared))
	}
	if n := disturbed(r); n > 0 {
		all = append(all,
			fmt.Sprintf("%s disturbed by other load or by a slower machine and discarded; where possible, such runs were repeated", plural(n, "run")+was(n)))
	}
	return all
}

// roughly writes a share in whole per cent.
func roughly(share float64) string {
	if share < 0.005 {
		return "less than 1 %"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

func was(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

// otherShare is the share of the machine's CPU time that other processes used in
// the median run.
func otherShare(r *result.Report) float64 {
	return medianShare(r, func(l *result.Ledger) float64 { return l.Other })
}

// medianShare is the share of the machine's CPU time that a consumer used in the median run.
func medianShare(r *result.Report, used func(*result.Ledger) float64) float64 {
	var shares []float64
	for _, run := range r.Runs {
		if l := run.Ledger; l != nil && l.Wall > 0 && l.CPUs > 0 {
			shares = append(shares, used(l)/(l.Wall*float64(l.CPUs)))
		}
	}
	return stats.Median(shares)
}

// disturbed counts the runs that were disturbed.
func disturbed(r *result.Report) int {
	n := 0
	for _, run := range r.Runs {
		if run.Disturbed {
			n++
		}
	}
	return n
}

// busiest names the commands that used most CPU time, over all runs.
func busiest(r *result.Report) string {
	spent := map[string]float64{}
	for _, run := range r.Runs {
		for _, c := range run.Others {
			spent[c.Command] += c.Seconds
		}
	}
	names := mostFirst(spent)
	names = names[:min(3, len(names))]
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %.1f s", name, spent[name])
	}
	if len(names) == 0 {
		return ""
	}
	return ", most by " + and(names)
}
