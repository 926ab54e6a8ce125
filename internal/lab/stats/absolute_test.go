package stats

import (
	"testing"

	"fairlead/internal/lab/result"
)

// TestZeroFailuresIsTheBestFigure: no ratio is formed, and the worst round is
// reported.
func TestZeroFailuresIsTheBestFigure(t *testing.T) {
	run := func(round int, path string, half int, failed float64, invalid ...string) result.Run {
		return result.Run{Case: result.Case{Path: path, Client: result.Remote, Workload: "failover-killed"},
			Round: round, Half: half,
			Metrics: map[result.Metric]float64{result.FailedRequests: failed}, Invalid: invalid}
	}
	rows := Summarize([]result.Run{
		run(1, "routed", 1, 3000), run(1, "balance:nft", 0, 0), run(1, "balance:ebpf", 0, 0, "disturbed"),
		run(2, "routed", 1, 3100), run(2, "balance:nft", 0, 7), run(2, "balance:ebpf", 0, 0),
		run(3, "routed", 1, 2900), run(3, "balance:nft", 0, 0), run(3, "balance:ebpf", 0, 0),
	}, "routed", 1)
	want := []result.Summary{
		{Case: result.Case{Path: "routed"}, Value: 3000, Low: 2900, High: 3100, Worst: 3100, Rounds: 3},
		{Case: result.Case{Path: "balance:ebpf"}, Rounds: 2, Invalid: 1},
		{Case: result.Case{Path: "balance:nft"}, High: 7, Worst: 7, Rounds: 3},
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	for i, w := range want {
		g := rows[i]
		if g.Path != w.Path || g.Value != w.Value || g.Low != w.Low || g.High != w.High || g.Worst != w.Worst ||
			g.Rounds != w.Rounds || g.Invalid != w.Invalid || g.Baseline != "" || g.Ratio != 0 || g.Distinguishable {
			t.Errorf("got %+v, want %+v", g, w)
		}
	}
}
