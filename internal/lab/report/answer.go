package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// tooNoisy is the uncertainty, as a distance from 1, beyond which a ratio that
// cannot be told from 1 says nothing: neither that the path costs more, nor that
// it does not.
const tooNoisy = 0.20

// answer says in plain words, from the figures alone, what the suite found: a
// sentence for each client and path about every column of the table, what each
// hop adds where the suite goes hop by hop, what failed in failovers, the
// greatest cost, and where another tool disagrees.
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

// comparedColumns are the columns of a client's table that have a ratio. The
// throughput at a fixed rate is that rate on every path, and says nothing.
func comparedColumns(r *result.Report, client result.Client) []column {
	return slices.DeleteFunc(headColumns(r, client), func(c column) bool {
		return result.Absolute(c.metric) || c.metric == result.Throughput && result.FixedRate(c.workload)
	})
}

// certainty is what a row says about its path in the answer.
type certainty int

const (
	absent certainty = iota // the path has no such figure
	invalid
	noisy
	alike
	isBetter
	isWorse
)

// say judges a row; alike is only what is known well enough to be so.
func say(s *result.Summary) certainty {
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
	if s.Rounds < 2 || math.Max(s.Noise, widest95(s)) > tooNoisy {
		return noisy
	}
	return alike
}

// widest95 is how far the farther end of the interval is from the ratio.
func widest95(s *result.Summary) float64 {
	return math.Expm1(math.Max(math.Log(s.RatioHigh/s.Ratio), math.Log(s.Ratio/s.RatioLow)))
}

// pathSentences say how each path does in every column.
func pathSentences(r *result.Report, client result.Client, columns []column) []string {
	var all []string
	base := baselineOf(r)
	for _, path := range pathsOf(r, client) {
		found := map[certainty][]string{}
		for _, c := range columns {
			s := c.at(r, path)
			name := c.title
			if k := say(s); k == isBetter || k == isWorse {
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
			k    certainty
			text string
		}{{isWorse, "worse in "}, {isBetter, "better in "}, {alike, "cannot be told from it in "}, {noisy, "too noisy to say in "}, {invalid, "no valid round of "}} {
			if len(found[p.k]) > 0 {
				parts = append(parts, p.text+and(found[p.k]))
			}
		}
		all = append(all, fmt.Sprintf("For a %s, %s against %s: %s.", clientTitle(client), path, base, strings.Join(parts, "; ")))
	}
	return all
}

// allNoisy reports whether there are figures and none of them says anything.
func allNoisy(r *result.Report, client result.Client, columns []column) bool {
	found := false
	for _, c := range columns {
		for _, path := range pathsOf(r, client) {
			switch say(c.at(r, path)) {
			case alike, isBetter, isWorse, invalid:
				return false
			case noisy:
				found = true
			}
		}
	}
	return found
}

// noisySentence says what the noise is and what to do.
func noisySentence(r *result.Report, client result.Client, columns []column) string {
	floor, known := floorOf(r, columns)
	why := "one round has no interval"
	if known {
		why = "two measurements of " + baselineOf(r) + " itself differ by up to " + percent(floor)
	}
	return fmt.Sprintf("For a %s it is too noisy to say what the paths cost: %s. Make more rounds, or longer ones, on a machine that does nothing else.", clientTitle(client), why)
}

// worstSentence names the greatest cost of all, by the end of the interval that
// is nearer to none: what is known least about is not the greatest.
func worstSentence(r *result.Report) []string {
	var worst *result.Summary
	var where column
	for _, client := range clientsOf(r) {
		for _, c := range comparedColumns(r, client) {
			for _, p := range pathsOf(r, client) {
				if s := c.at(r, p); c.metric != result.IdleShare && say(s) == isWorse && (worst == nil || certain(s) > certain(worst)) {
					worst, where = s, c
				}
			}
		}
	}
	if worst == nil {
		return nil
	}
	return []string{fmt.Sprintf("The greatest cost is %s through %s for a %s: %s\u00a0×\u00a0%s (95\u00a0%% %s\u00a0to\u00a0%s).", where.title, worst.Path,
		clientTitle(where.client), formatRatio(worst.Ratio), worst.Baseline, formatRatio(worst.RatioLow), formatRatio(worst.RatioHigh))}
}

// certain is the least difference from the baseline that the interval holds.
func certain(s *result.Summary) float64 {
	if s.RatioLow <= 1 && s.RatioHigh >= 1 {
		return 0
	}
	return math.Min(math.Abs(math.Log(s.RatioLow)), math.Abs(math.Log(s.RatioHigh)))
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
