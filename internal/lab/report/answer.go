package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// tooNoisy is the uncertainty, as a distance from 1, beyond which a ratio that is
// not distinguishable from 1 means nothing: neither that the path costs more, nor
// that it does not.
const tooNoisy = 0.20

// answer returns the result of the session in sentences that are derived from the
// figures alone. For each client there is one sentence per path about every column of
// the table or, in suites with steps, about what each hop adds. Other sentences report
// failed requests in failovers, the greatest cost, and figures on which another tool
// disagrees.
func answer(r *result.Report) []string {
	var all []string
	for _, client := range clientsOf(r) {
		columns := comparedColumns(r, client)
		switch {
		case len(r.Steps) > 0:
			all = append(all, stepSentences(r, client)...)
		case allNoisy(r, client, columns):
			all = append(all, noisySentence(r, client, columns))
		default:
			all = append(all, pathSentences(r, client, columns)...)
		}
		all = append(all, failoverSentences(r, client)...)
	}
	if len(r.Steps) == 0 {
		all = append(all, worstSentence(r)...)
	}
	for _, s := range crossChecks(r) {
		all = append(all, "Cross-check: "+s+".")
	}
	if len(all) == 0 {
		return []string{"No path could be compared in this session."}
	}
	return all
}

// comparedColumns returns the columns of a client's table that have a ratio. It
// omits the throughput at a fixed rate, which is the same on every path.
func comparedColumns(r *result.Report, client result.Client) []column {
	return slices.DeleteFunc(headColumns(r, client), func(c column) bool {
		return result.Absolute(c.metric) || c.metric == result.Throughput && result.FixedRate(c.workload)
	})
}

// finding is the result of comparing a path with the baseline.
type finding int

const (
	absent finding = iota // the path has no such figure, or is the baseline
	invalid
	noisy
	similar
	isBetter
	isWorse
)

// findingOf evaluates a row. It returns similar only if the uncertainty is small
// enough.
func findingOf(s *result.Summary) finding {
	switch {
	case s == nil || s.Baseline == "" || s.Path == s.Baseline:
		return absent
	case s.Rounds == 0:
		return invalid
	}
	switch judge(s) {
	case better:
		return isBetter
	case worse:
		return isWorse
	}
	if s.Rounds < 2 || s.Sessions == 1 || math.Max(s.Noise, widest95(s)) > tooNoisy {
		return noisy
	}
	return similar
}

// widest95 is the distance from the ratio to the farther end of its interval.
func widest95(s *result.Summary) float64 {
	low, high := s.Interval()
	return math.Expm1(math.Max(math.Log(high/s.Ratio), math.Log(s.Ratio/low)))
}

// pathSentences returns one sentence per path about all columns.
func pathSentences(r *result.Report, client result.Client, columns []column) []string {
	var all []string
	base := baselineOf(r)
	for _, path := range pathsOf(r, client) {
		found := map[finding][]string{}
		for _, c := range columns {
			s := c.at(r, path)
			name := c.title
			if k := findingOf(s); k == isBetter || k == isWorse {
				found[k] = append(found[k], fmt.Sprintf("%s (%s\u00a0×)", name, formatRatio(s.Ratio)))
			} else {
				found[k] = append(found[k], name)
			}
		}
		delete(found, absent)
		if len(found) == 0 {
			continue
		}
		var parts []string
		for _, p := range []struct {
			k    finding
			text string
		}{{isWorse, "worse in "}, {isBetter, "better in "}, {similar, "not distinguishable in "},
			{noisy, "too noisy to decide in "}, {invalid, "no valid round of "}} {
			if len(found[p.k]) > 0 {
				parts = append(parts, p.text+and(found[p.k]))
			}
		}
		all = append(all, fmt.Sprintf("For a %s, %s compared with %s: %s.", clientTitle(client), path, base,
			strings.Join(parts, "; ")))
	}
	return all
}

// allNoisy reports whether there are figures and all of them are too noisy.
func allNoisy(r *result.Report, client result.Client, columns []column) bool {
	found := false
	for _, c := range columns {
		for _, path := range pathsOf(r, client) {
			switch findingOf(c.at(r, path)) {
			case similar, isBetter, isWorse, invalid:
				return false
			case noisy:
				found = true
			}
		}
	}
	return found
}

// noisySentence states how great the noise is and what users can do about it.
func noisySentence(r *result.Report, client result.Client, columns []column) string {
	floor, known := floorOf(r, columns)
	reason := "one round gives no interval"
	if known {
		reason = "two measurements of " + baselineOf(r) + " itself differ by up to " + percent(floor)
	}
	return fmt.Sprintf("For a %s, the noise is too great to find out what the paths cost: %s. Measure more or longer rounds, on a machine without other load.", clientTitle(client), reason)
}

// worstSentence names the greatest cost of all. It compares the end of each
// interval that is nearer to no cost, so an uncertain figure does not count as the
// greatest.
func worstSentence(r *result.Report) []string {
	var worst *result.Summary
	var where column
	for _, client := range clientsOf(r) {
		for _, c := range comparedColumns(r, client) {
			for _, p := range pathsOf(r, client) {
				if s := c.at(r, p); c.metric != result.IdleShare && findingOf(s) == isWorse &&
					(worst == nil || leastDifference(s) > leastDifference(worst)) {
					worst, where = s, c
				}
			}
		}
	}
	if worst == nil {
		return nil
	}
	low, high := worst.Interval()
	return []string{fmt.Sprintf("The greatest cost is %s on %s for a %s: %s\u00a0×\u00a0%s (95\u00a0%% %s\u00a0to\u00a0%s).", where.title, worst.Path,
		clientTitle(where.client), formatRatio(worst.Ratio), worst.Baseline, formatRatio(low),
		formatRatio(high))}
}

// leastDifference is the least difference from the baseline within the interval,
// as a logarithm.
func leastDifference(s *result.Summary) float64 {
	low, high := s.Interval()
	if low <= 1 && high >= 1 {
		return 0
	}
	return math.Min(math.Abs(math.Log(low)), math.Abs(math.Log(high)))
}

// and joins words with commas and a final "and".
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
