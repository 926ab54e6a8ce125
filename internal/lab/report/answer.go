package report

import (
	"cmp"
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
// figures alone. For each client there is one sentence per path, the one with the
// greatest difference first or, in suites with steps, one about what each hop adds.
// Other sentences report the median and the worst round of figures without ratios, and
// figures on which another tool disagrees.
func answer(r *result.Report) []string {
	var all []string
	for _, client := range clientsOf(r) {
		if len(r.Steps) > 0 {
			all = append(all, stepSentences(r, client)...)
		} else if columns := comparedColumns(r, client); !allNoisy(r, client, columns) {
			all = append(all, pathSentences(r, client, columns)...)
		}
		all = append(all, absoluteSentences(r, client)...)
	}
	for _, s := range crossChecks(r) {
		all = append(all, "Cross-check: "+s+".")
	}
	return all
}

// comparedColumns returns the columns of a client's table that have a ratio. It
// omits the throughput at a fixed rate, which is the same on every path.
func comparedColumns(r *result.Report, client result.Client) []column {
	return slices.DeleteFunc(headColumns(r, client), func(c column) bool {
		base := c.at(r, baselineOf(r))
		return base == nil || base.Baseline == "" || c.metric == result.Throughput && result.FixedRate(c.workload)
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
	if !s.HasInterval() || math.Max(s.Noise, widest95(s)) > tooNoisy {
		return noisy
	}
	return similar
}

// widest95 is the distance from the ratio to the farther end of its interval.
func widest95(s *result.Summary) float64 {
	low, high := s.Interval()
	return math.Expm1(math.Max(math.Log(high/s.Ratio), math.Log(s.Ratio/low)))
}

// kinds are the findings in the order of a sentence: how the first part of a sentence
// begins, and how a later one does.
var kinds = []struct {
	finding
	first, later string
}{
	{isWorse, "is worse than %s in ", "worse in "},
	{isBetter, "is better than %s in ", "better in "},
	{similar, "is not distinguishable from %s in ", "not distinguishable in "},
	{noisy, "is too noisy to compare with %s in ", "too noisy to compare in "},
	{invalid, "has no valid round to compare with %s in ", "without a valid round in "},
}

// row is a path's figure in a column.
type row struct {
	column
	*result.Summary
}

// pathSentences returns one sentence per path, the one with the greatest difference
// first. Within a sentence, too, the greatest differences come first.
func pathSentences(r *result.Report, client result.Client, columns []column) []string {
	type sentence struct {
		text string
		size float64
	}
	var all []sentence
	for _, path := range pathsOf(r, client) {
		rows := map[finding][]row{}
		for _, c := range columns {
			s := c.at(r, path)
			rows[findingOf(s)] = append(rows[findingOf(s)], row{c, s})
		}
		delete(rows, absent)
		if len(rows) > 0 {
			all = append(all, sentence{sentenceOf(r, client, path, rows), greatest(slices.Concat(rows[isWorse],
				rows[isBetter]))})
		}
	}
	slices.SortStableFunc(all, func(a, b sentence) int { return cmp.Compare(b.size, a.size) })
	var texts []string
	for _, s := range all {
		texts = append(texts, s.text)
	}
	return texts
}

// greatest is the greatest difference among rows. An uncertain figure counts with the
// end of its interval that is nearer to no difference. The idle share does not count,
// because near zero its ratios are large.
func greatest(rows []row) float64 {
	size := 0.0
	for _, x := range rows {
		if x.Metric != result.IdleShare {
			size = max(size, leastDifference(x.Summary))
		}
	}
	return size
}

// sentenceOf writes the sentence about a path. It names the client if there are several.
func sentenceOf(r *result.Report, client result.Client, path string, rows map[finding][]row) string {
	var parts []string
	for _, k := range kinds {
		of := rows[k.finding]
		if len(of) == 0 {
			continue
		}
		slices.SortStableFunc(of, func(a, b row) int {
			return cmp.Compare(leastDifference(b.Summary), leastDifference(a.Summary))
		})
		var names []string
		for _, x := range of {
			if k.finding == isWorse || k.finding == isBetter {
				names = append(names, fmt.Sprintf("%s (%s\u00a0×)", x.title, formatRatio(x.Ratio)))
			} else {
				names = append(names, x.title)
			}
		}
		begin := k.later
		if len(parts) == 0 {
			begin = path + " " + fmt.Sprintf(k.first, baselineOf(r))
		}
		parts = append(parts, begin+and(few(names)))
	}
	text := strings.Join(parts, "; ") + "."
	if len(clientsOf(r)) > 1 {
		text = fmt.Sprintf("For a %s, %s", clientTitle(client), text)
	}
	return text
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

// leastDifference is the least difference from the baseline within the interval,
// as a logarithm.
func leastDifference(s *result.Summary) float64 {
	low, high := s.Interval()
	if !s.HasInterval() || low <= 1 && high >= 1 {
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
