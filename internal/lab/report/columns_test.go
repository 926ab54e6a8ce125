package report

import (
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
)

// TestLatencyUnderLoad: the table and the answer have the median, the tail, and the
// throughput at the same time.
func TestLatencyUnderLoad(t *testing.T) {
	r := &result.Report{Paths: []string{"host", "nat"}}
	for _, path := range r.Paths {
		for _, m := range []result.Metric{result.LatencyP50, result.LatencyP99, result.Throughput, result.IdleShare} {
			r.Summary = append(r.Summary, result.Summary{Case: result.Case{Path: path, Client: result.Remote,
				Workload: "tcp-rr-loaded", Tool: result.OwnTool}, Metric: m, Baseline: "host", Rounds: 5, Ratio: 2,
				RatioLow: 1.9, RatioHigh: 2.1, Value: 1, Better: result.Units[m].Better, Distinguishable: true})
		}
	}
	var titles []string
	for _, c := range headColumns(r, result.Remote) {
		titles = append(titles, c.title)
	}
	want := []string{"round trip loaded", "round trip loaded, throughput", "round trip loaded, p99 latency"}
	if !slices.Equal(titles, want) {
		t.Errorf("got the columns %q, want %q", titles, want)
	}
	text := strings.Join(answer(r), " ")
	for _, title := range want {
		if !strings.Contains(text, title+" (2") {
			t.Errorf("the answer has no %q: %s", title, text)
		}
	}
}
