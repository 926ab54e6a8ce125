package report

import (
	"fmt"
	"math"
	"strings"

	"fairlead/internal/lab/result"
)

// stepSentences returns one sentence per figure of the steps about what each hop
// adds.
func stepSentences(r *result.Report, client result.Client) []string {
	var all []string
	for _, c := range stepColumns(r, client) {
		var adds, nothing, noise []string
		for i, s := range r.Steps {
			f := c.at(s)
			if s.Over == "" || f.Rounds == 0 {
				continue
			}
			name := s.Name + over(r, i)
			low, high := f.Interval()
			switch {
			case f.Distinguishable:
				adds = append(adds, fmt.Sprintf("%s %s\u00a0%s (95\u00a0%% %s\u00a0to\u00a0%s)", name,
					c.signed(f.Added), unitOf(c.scale), c.signed(low), c.signed(high)))
			case f.Rounds < 2 || math.Max(f.Noise, (high-low)/2) > tooNoisy*f.Value:
				noise = append(noise, name)
			default:
				nothing = append(nothing, name)
			}
		}
		var parts []string
		if len(adds) > 0 {
			parts = append(parts, "a difference for "+and(adds))
		}
		if len(nothing) > 0 {
			parts = append(parts, "no distinguishable difference for "+and(nothing))
		}
		if len(noise) > 0 {
			parts = append(parts, "too noisy to decide for "+and(noise))
		}
		if len(parts) > 0 {
			all = append(all, fmt.Sprintf("For a %s, %s, %s: %s.", clientTitle(client), c.title, metricTitle(c.metric),
				strings.Join(parts, "; ")))
		}
	}
	return all
}

// absoluteSentences returns one sentence per workload whose main figure has no ratio,
// such as the failed requests of a failover, with the figures of all paths.
func absoluteSentences(r *result.Report, client result.Client) []string {
	var all []string
	for _, c := range headColumns(r, client) {
		if c.metric != result.Main(c.workload) || !result.Absolute(c.metric) {
			continue
		}
		var parts []string
		for _, path := range pathsOf(r, client) {
			switch s := c.at(r, path); {
			case s == nil:
			case s.Rounds == 0:
				parts = append(parts, "no valid round on "+path)
			default:
				parts = append(parts, fmt.Sprintf("%s on %s (worst round %s%s)", c.figure(s.Value), path,
					c.figure(s.Worst), reasons(r, s.Case)))
			}
		}
		if len(parts) > 0 {
			all = append(all, fmt.Sprintf("For a %s, %s in the median round of %s: %s.",
				clientTitle(client), metricTitle(c.metric), c.title, and(parts)))
		}
	}
	return all
}

// maxReasons is the number of reasons of failures that a sentence gives.
const maxReasons = 2

// reasons returns the most frequent reasons of the failures of a case in its valid runs,
// if it is about running out of ports; empty if there were none.
func reasons(r *result.Report, k result.Case) string {
	if result.Kind(k.Workload) != result.PortExhaustion {
		return ""
	}
	count := map[string]int{}
	for i := range r.Runs {
		if r.Runs[i].Case != k || len(r.Runs[i].Invalid) > 0 {
			continue
		}
		for why, n := range r.Runs[i].Failed {
			count[why] += n
		}
	}
	all := mostFirst(count)
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all[:min(len(all), maxReasons)], ", ")
}

// figure writes a figure with its unit; numbers of failures need none.
func (c column) figure(x float64) string {
	if unit := unitOf(c.scale); unit != "failed" {
		return c.scale.format(x) + "\u00a0" + unit
	}
	return c.scale.format(x)
}
