// Package report presents a laboratory session as a terminal table, JSON, Go
// benchmark lines, iperf3 JSON or a self-contained HTML page, and compares two
// sessions. It does not measure, and leaves statistics to the stats package.
package report

import (
	"cmp"
	"math"
	"slices"

	"fairlead/internal/lab/result"
)

// baselineOf returns the path that the report compares with, or "".
func baselineOf(r *result.Report) string {
	for _, s := range r.Summary {
		if s.Baseline != "" {
			return s.Baseline
		}
	}
	return ""
}

// clientsOf lists the clients that have rows.
func clientsOf(r *result.Report) []result.Client {
	all := result.Distinct(r.Summary, func(s result.Summary) result.Client { return s.Client })
	slices.SortStableFunc(all, func(a, b result.Client) int {
		return cmp.Compare(rank(result.Clients, a), rank(result.Clients, b))
	})
	return all
}

// pathsOf lists the paths that have rows for a client: the baseline, then
// the suite's order, then any others by name.
func pathsOf(r *result.Report, c result.Client) []string {
	var all []string
	for _, s := range r.Summary {
		if s.Client == c && !slices.Contains(all, s.Path) {
			all = append(all, s.Path)
		}
	}
	order := append([]string{baselineOf(r)}, r.Paths...)
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(order, a), rank(order, b)), cmp.Compare(a, b))
	})
	return all
}

// find returns the row of one case and metric, or nil.
func find(r *result.Report, c result.Case, m result.Metric) *result.Summary {
	for i := range r.Summary {
		if s := &r.Summary[i]; s.Case == c && s.Metric == m {
			return s
		}
	}
	return nil
}

// rank is the position of x, or math.MaxInt if it is not in the list.
func rank[T comparable](all []T, x T) int {
	if i := slices.Index(all, x); i >= 0 {
		return i
	}
	return math.MaxInt
}

// verdict is the result of comparing a row with its baseline.
type verdict int

const (
	unknown verdict = iota
	same
	better
	worse
)

// judge compares a row with its baseline.
func judge(s *result.Summary) verdict {
	switch {
	case s == nil || s.Rounds == 0 || s.Baseline == "" || s.Path == s.Baseline:
		return unknown
	case !s.Distinguishable:
		return same
	case s.Ratio > 1 == (s.Better == result.Higher):
		return better
	}
	return worse
}

// drifted reports whether the baseline's halves differ by more than the noise
// floor; s is the baseline's own row.
func drifted(s *result.Summary) bool {
	if s.Path != s.Baseline || s.Rounds < 2 || s.RatioLow == 0 {
		return false
	}
	middle := (math.Log(s.RatioLow) + math.Log(s.RatioHigh)) / 2
	return math.Abs(middle) > math.Log1p(s.Noise)
}
