package expr

import (
	"strings"
	"testing"

	"fairlead/internal/lab/result"
)

// pastRatios returns earlier sessions in which every figure had these ratios.
func pastRatios(ratios ...float64) Past {
	return func(c result.Case, m result.Metric) []result.Summary {
		var rows []result.Summary
		for _, r := range ratios {
			rows = append(rows, result.Summary{Case: c, Metric: m, Baseline: "host", Ratio: r, Rounds: 6})
		}
		return rows
	}
}

// TestConditionsOnTheHistory: the ratio of nat is 0.9 in the report.
func TestConditionsOnTheHistory(t *testing.T) {
	past := pastRatios(0.95, 0.97, 0.96, 0.99, 0.94)
	for source, want := range map[string]bool{
		"nat.crr.ratio < history.median":                   true,
		"nat.crr.ratio < history.median - 0.05":            true,
		"nat.crr.ratio < history.median - 0.07":            false,
		"nat.crr.ratio < history.median * 0.9":             false,
		"history.median - 0.05 > nat.crr.ratio":            true,
		"nat.crr.ratio + 0.05 < history.last":              false,
		"nat.crr.ratio < 2 * history.median - 1 * 1":       true,
		"nat.crr.ratio < history.low":                      false,
		"nat.crr.ratio > history.high":                     false,
		"nat.crr.ratio < 0.5 || nat.crr.ratio<history.low": false,
	} {
		e, err := Parse(source)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		e.SetPast(past)
		failed, why, err := e.Eval(session())
		if err != nil || failed != want || !e.UsesHistory() {
			t.Errorf("%s: failed = %v (%s), %v", source, failed, why, err)
		}
	}
	e, _ := Parse("nat.crr.ratio < history.median - 0.05")
	e.SetPast(past)
	_, why, _ := e.Eval(session())
	if want := "ratio = 0.9 is < history.median = 0.96 (of 5) - 0.05"; !strings.HasSuffix(why, want) {
		t.Errorf("got %q, want %q", why, want)
	}
}

// TestHistoryErrors: mistakes are found before the measurements.
func TestHistoryErrors(t *testing.T) {
	for source, column := range map[string]int{
		"nat.ratio < history.mean":               21,
		"nat.ratio < history.median-0.05":        21,
		"nat.crr.ratio < host.crr + history.low": 28,
		"history.low < 1":                        1,
		"nat.crr.ratio < history.low +":          30,
	} {
		_, err := Parse(source)
		check(t, source, err, column, "")
	}
	cases := []result.Case{{Path: "nat", Client: result.Remote, Workload: "tcp-crr", Tool: "fairlead"}}
	for source, past := range map[string]Past{
		"nat.ratio < history.median": pastRatios(), "nat.ratio < history.low": pastRatios(0.9, 0.8),
		"nat.ratio < history.last": nil,
	} {
		e, err := Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		e.SetPast(past)
		check(t, source, e.Check(cases), 1, "--history")
	}
}
