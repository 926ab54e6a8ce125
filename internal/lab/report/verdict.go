package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/lab/result"
)

// conclusion is the first sentence of a report: whether the session went well, and
// which of its figures may be believed. Class is the class of the style sheet.
type conclusion struct{ Text, Class string }

// conclude evaluates what was measured, then the noise, then the load of the machine.
func conclude(r *result.Report) conclusion {
	missing, all := unmeasured(r), casesOf(r)
	switch {
	case len(all) == 0:
		return conclusion{"Nothing was measured.", "worse"}
	case len(missing) == len(all):
		return conclusion{fmt.Sprintf("Nothing was measured: %s discarded. %s", allRuns(r), mostFrequent(missing)),
			"worse"}
	case len(missing) > 0:
		return conclusion{fmt.Sprintf("Only a part was measured: %d of %s have no figure. %s %s", len(missing),
			plural(len(all), "measurement"), mostFrequent(missing), ofRest(trust(r).Text)), "worse"}
	}
	return trust(r)
}

// ofRest turns the conclusion about a run into one about a part of it.
func ofRest(text string) string {
	if word, rest, found := strings.Cut(text, " run"); found && !strings.Contains(word, " ") {
		return "The rest is a " + strings.ToLower(word) + " run" + rest
	}
	return text
}

func mostFrequent(all []discard) string { return "Most frequent reason: " + reasonOf(all) + "." }

// Unmeasured returns an error if something that was to be measured has no figure,
// because all its runs were discarded.
func Unmeasured(r *result.Report) error {
	missing, all := unmeasured(r), casesOf(r)
	switch {
	case len(all) == 0:
		return errors.New("nothing was measured")
	case len(missing) == len(all):
		return fmt.Errorf("nothing was measured: %s discarded: %s", allRuns(r), reasonOf(missing))
	case len(missing) > 0:
		return fmt.Errorf("%d of %s have no figure: %s", len(missing), plural(len(all), "measurement"),
			strings.Join(few(texts(missing)), "; "))
	}
	return nil
}

// casesOf lists the cases of which there are runs.
func casesOf(r *result.Report) []result.Case {
	return result.Distinct(r.Runs, func(run result.Run) result.Case { return run.Case })
}

// unmeasured returns the cases without a figure.
func unmeasured(r *result.Report) []discard {
	return slices.DeleteFunc(discards(r), func(d discard) bool {
		return slices.ContainsFunc(r.Summary, func(s result.Summary) bool { return s.Case == d.Case && s.Rounds > 0 })
	})
}

func texts(all []discard) (words []string) {
	for _, d := range all {
		d.reasons = []string{reasonOf([]discard{d})}
		words = append(words, d.String())
	}
	return words
}

// allRuns writes the number of all runs, for a sentence about them.
func allRuns(r *result.Report) string {
	if len(r.Runs) == 1 {
		return "the only run was"
	}
	return fmt.Sprintf("all %d runs were", len(r.Runs))
}

// A sentence repeats this many characters of the begin and of the end of a reason, which
// has the cause. The list of the discarded runs has all of it.
const reasonBegin, reasonEnd = 60, 140

// reasonOf returns the most frequent reason in one line.
func reasonOf(all []discard) string {
	count := map[string]int{}
	best := ""
	for _, d := range all {
		for _, why := range d.reasons {
			if count[why] += d.runs; best == "" || count[why] > count[best] {
				best = why
			}
		}
	}
	best = strings.Join(strings.Fields(best), " ")
	if all := []rune(best); len(all) > reasonBegin+reasonEnd {
		best = string(all[:reasonBegin]) + " … " + string(all[len(all)-reasonEnd:])
	}
	return strings.TrimRight(best, ". ")
}

// trust evaluates the figures of a session in which everything was measured.
func trust(r *result.Report) conclusion {
	var columns []column
	for _, client := range clientsOf(r) {
		columns = append(columns, comparedColumns(r, client)...)
	}
	if baselineOf(r) == "" || len(columns) == 0 {
		return unjudged(r)
	}
	var quiet, loud []column
	for _, c := range columns {
		if s := c.at(r, baselineOf(r)); s != nil && s.HasInterval() && s.Noise <= tooNoisy && !drifted(s) {
			quiet = append(quiet, c)
		} else {
			loud = append(loud, c)
		}
	}
	switch {
	case len(quiet) == 0 && slices.ContainsFunc(loud, func(c column) bool { return c.differs(r) }):
		return conclusion{fmt.Sprintf("Doubtful run: believe only the differences that the next sentences name, because "+
			"%s. Measure more or longer rounds, on a machine without other load.", doubt(r, loud)), "worse"}
	case len(quiet) == 0:
		return conclusion{fmt.Sprintf("Doubtful run: do not believe its ratios, because %s. Measure more or longer "+
			"rounds, on a machine without other load.", doubt(r, loud)), "worse"}
	case len(loud) > len(quiet):
		return conclusion{fmt.Sprintf("Doubtful run: believe only the ratios of %s, in which %s. Elsewhere %s. Measure "+
			"more or longer rounds, on a machine without other load.", and(few(titles(r, quiet))), exactness(r, quiet),
			doubt(r, loud)), "worse"}
	case len(loud) > 0:
		return conclusion{fmt.Sprintf("Good run except for %s: do not believe the ratios there, because %s. Elsewhere "+
			"%s. %s", and(few(titles(r, loud))), doubt(r, loud), exactness(r, quiet), counted(r)), "same"}
	case otherShare(r) >= notable || len(r.Laboratories) > 0:
		return conclusion{fmt.Sprintf("Usable run: believe the ratios, in which %s, but not the absolute figures, "+
			"because the machine had other load. %s", exactness(r, quiet), counted(r)), "same"}
	}
	return conclusion{fmt.Sprintf("Good run: believe its ratios, in which %s. %s", exactness(r, quiet), counted(r)),
		"better"}
}

// differs reports whether a path can be distinguished from the baseline.
func (c column) differs(r *result.Report) bool {
	return slices.ContainsFunc(pathsOf(r, c.client), func(path string) bool {
		found := findingOf(c.at(r, path))
		return found == isWorse || found == isBetter
	})
}

// unjudged is the conclusion for a session whose figures are not compared.
func unjudged(r *result.Report) conclusion {
	switch {
	case imported(r):
		return conclusion{"Imported figures: there is no baseline to compare with, and nothing is known about the " +
			"machine.", "same"}
	case baselineOf(r) == "" && !slices.ContainsFunc(r.Summary, func(s result.Summary) bool {
		return result.Absolute(s.Metric)
	}):
		return conclusion{"No figure is compared with another one. " + counted(r), "same"}
	}
	return conclusion{"Good run: its figures have no ratios, so compare the medians and the worst rounds. " +
		counted(r), "better"}
}

// Imported is the name of the suite in reports of files that iperf3 wrote.
const Imported = "iperf3"

func imported(r *result.Report) bool { return r.Suite == Imported }

// doubt is the reason why the ratios of columns say little.
func doubt(r *result.Report, columns []column) string {
	base := baselineOf(r)
	floor, known := floorOf(r, columns)
	switch {
	case !known:
		return "it takes two valid rounds to see how exact they are"
	case floor > 10:
		return fmt.Sprintf("two measurements of %s itself differ by more than 1000 %%", base)
	}
	return fmt.Sprintf("two measurements of %s itself differ by up to %s", base, percent(floor))
}

// exactness writes how exact the ratios of columns are.
func exactness(r *result.Report, columns []column) string {
	floor, _ := floorOf(r, columns)
	return fmt.Sprintf("two measurements of %s itself differ by at most %s", baselineOf(r), percent(floor))
}

// counted writes how many runs count.
func counted(r *result.Report) string {
	lost := lostRuns(r)
	if lost == 0 {
		return fmt.Sprintf("All %d runs count.", len(r.Runs))
	}
	return fmt.Sprintf("%d of %d runs count.", len(r.Runs)-lost, len(r.Runs))
}

// titles names columns, with the client if there are several.
func titles(r *result.Report, columns []column) (all []string) {
	for _, c := range columns {
		title := c.title
		if len(clientsOf(r)) > 1 {
			title += " for a " + clientTitle(c.client)
		}
		all = append(all, title)
	}
	return all
}

// most is how many names a sentence lists.
const most = 3

// few returns the first names, and the number of the others.
func few(names []string) []string {
	if len(names) <= most {
		return names
	}
	return append(slices.Clone(names[:most]), fmt.Sprint(len(names)-most, " more"))
}

// floors writes the noise floors of the compared columns: the least and the greatest.
func floors(r *result.Report) string {
	var low, high *result.Summary
	var lowIn, highIn column
	for _, client := range clientsOf(r) {
		for _, c := range comparedColumns(r, client) {
			s := c.at(r, baselineOf(r))
			if s == nil || s.Rounds < 2 || s.Baseline == "" {
				continue
			}
			if low == nil || s.Noise < low.Noise {
				low, lowIn = s, c
			}
			if high == nil || s.Noise > high.Noise {
				high, highIn = s, c
			}
		}
	}
	switch {
	case low == nil:
		return ""
	case formatNoise(low.Noise) == formatNoise(high.Noise):
		return formatNoise(low.Noise)
	}
	return fmt.Sprintf("%s (%s) to %s (%s)", formatNoise(low.Noise), lowIn.title, formatNoise(high.Noise), highIn.title)
}

// formatNoise writes a noise floor. One over 100 % says only that a figure is noise.
func formatNoise(noise float64) string {
	if noise > 1 {
		return "over 100 %"
	}
	return "±" + percent(noise)
}

// headline writes what was measured, and where; parts that are unknown are left out.
func headline(r *result.Report) string {
	parts := []string{cmp.Or(r.Suite, "no suite")}
	if r.Host.Kernel != "" {
		parts = append(parts, kernel(r.Host.Kernel))
	}
	if r.Host.CPUs > 0 {
		parts = append(parts, plural(r.Host.CPUs, "CPU"))
	}
	if r.Family != 0 {
		parts = append(parts, r.Family.String())
	}
	if r.Netem != nil {
		parts = append(parts, "netem "+r.Netem.String())
	}
	parts = append(parts, measured(r))
	if !imported(r) {
		parts = append(parts, fmt.Sprint("seed ", r.Seed))
	}
	return strings.Join(parts, " · ")
}

// lacking explains which ratios and intervals of the compared columns are absent.
func lacking(r *result.Report) []string {
	var all []string
	for _, client := range clientsOf(r) {
		for _, c := range headColumns(r, client) {
			for _, p := range pathsOf(r, client) {
				s := c.at(r, p)
				what := noMargin + " no interval"
				switch {
				case s == nil || s.Rounds == 0:
					continue
				case s.Lacks != "" && s.Baseline == "":
					what = "no ratio"
				case s.Lacks == "" && (s.Baseline == "" || s.Rounds < 2 || s.Sessions == 1 || s.HasInterval()):
					continue
				}
				all = append(all, fmt.Sprintf("%s: %s on %s: %s", what, titles(r, []column{c})[0], p,
					cmp.Or(s.Lacks, "the rounds differ too much")))
			}
		}
	}
	return few(all)
}
