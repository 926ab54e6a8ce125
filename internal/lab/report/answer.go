package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// answer says in plain words, from the figures alone, what the suite found:
// a sentence for each client on the first column, and one on the worst cost.
func answer(r *result.Report) []string {
	var all []string
	for _, client := range clientsOf(r) {
		columns := headColumns(r, client)
		if len(columns) > 0 {
			if s := columnSentence(r, columns[0]); s != "" {
				all = append(all, s)
			}
		}
	}
	if s := worstSentence(r); s != "" {
		all = append(all, s)
	}
	if len(all) == 0 {
		return []string{"No path could be compared in this session."}
	}
	return all
}

// columnSentence tells how every path does in one column.
func columnSentence(r *result.Report, c column) string {
	var told, alike []string
	base := baselineOf(r)
	for _, p := range pathsOf(r, c.client) {
		s := c.at(r, p)
		switch judge(s) {
		case same:
			alike = append(alike, p)
		case better, worse:
			told = append(told, fmt.Sprintf("%s\u00a0×\u00a0%s through %s", formatRatio(s.Ratio), base, p))
		}
	}
	verb := "takes"
	if result.Units[c.metric].Better == result.Higher {
		verb = "runs at"
	}
	var parts []string
	if len(told) > 0 {
		parts = append(parts, fmt.Sprintf("%s %s %s", c.title, verb, and(told)))
	}
	if len(alike) > 0 {
		parts = append(parts, fmt.Sprintf("through %s %s cannot be told from %s", and(alike), c.title, base))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("For a %s, %s.", clientTitle(c.client), strings.Join(parts, "; "))
}

// worstSentence names the greatest cost of all.
func worstSentence(r *result.Report) string {
	var worst *result.Summary
	var where column
	for _, client := range clientsOf(r) {
		for _, c := range headColumns(r, client) {
			for _, p := range pathsOf(r, client) {
				s := c.at(r, p)
				if c.metric != result.IdleShare && judge(s) == worse && (worst == nil || math.Abs(math.Log(s.Ratio)) > math.Abs(math.Log(worst.Ratio))) {
					worst, where = s, c
				}
			}
		}
	}
	if worst == nil {
		return ""
	}
	return fmt.Sprintf("The greatest cost is %s through %s for a %s: %s\u00a0×\u00a0%s (95\u00a0%% %s\u00a0to\u00a0%s).", where.title, worst.Path,
		clientTitle(where.client), formatRatio(worst.Ratio), worst.Baseline, formatRatio(worst.RatioLow), formatRatio(worst.RatioHigh))
}

// and joins words as one writes them.
func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// workloadsOf lists a client's workloads in the order of the table.
func workloadsOf(r *result.Report, client result.Client) []string {
	var all []string
	for _, s := range r.Summary {
		if s.Client == client && !slices.Contains(all, s.Workload) {
			all = append(all, s.Workload)
		}
	}
	slices.SortFunc(all, compareWorkloads)
	return all
}
