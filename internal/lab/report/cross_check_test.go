package report

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// generated is a session of Fairlead's generator and of iperf3, each with a
// maximum rate. The path carries 13 Gbit/s, the host 40.
func generated(ourLimit, theirLimit float64) *result.Report {
	rng := rand.New(rand.NewPCG(3, 3))
	r := &result.Report{Suite: "quick", Rounds: 8, Paths: []string{"host", "docker-proxy"}}
	// In a fixed order: the tools share the random numbers.
	for _, tool := range []string{result.OwnTool, "iperf3"} {
		limit := map[string]float64{result.OwnTool: ourLimit, "iperf3": theirLimit}[tool]
		for round := range r.Rounds {
			for _, turn := range []stats.Turn{{Path: "host", Half: 1}, {Path: "docker-proxy"},
				{Path: "host", Half: 2}} {
				rate := min(limit, map[string]float64{"host": 40e9, "docker-proxy": 13e9}[turn.Path])
				r.Runs = append(r.Runs, result.Run{
					Case:  result.Case{Path: turn.Path, Client: result.Local, Workload: "tcp-bulk", Tool: tool},
					Round: round + 1, Half: turn.Half,
					Metrics: map[result.Metric]float64{result.Throughput: rate * math.Exp(0.02*rng.NormFloat64())},
					Ledger: &result.Ledger{Wall: 1, CPUs: 2, Busy: 1.5, Idle: 0.5, Client: 0.5,
						Server: min(1, rate/limit)},
				})
			}
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", 1)
	return r
}

// TestCrossChecks: a line reports that the intervals do not overlap and which
// generator is the bottleneck.
func TestCrossChecks(t *testing.T) {
	for name, s := range map[string]struct {
		ours, theirs float64
		want         []string
	}{
		"they agree": {100e9, 100e9, nil},
		"the tool is slower": {100e9, 22e9,
			[]string{"iperf3 disagrees on docker-proxy, client on the same host, bulk: 0.59", "with iperf3, 0.33",
				"iperf3 is the bottleneck on host (22.", "its server uses 100\u00a0% of a CPU"}},
		"Fairlead is slower": {22e9, 100e9, []string{"Fairlead's generator is the bottleneck on host"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := generated(s.ours, s.theirs)
			for _, text := range []string{string(tableOf(t, r, Options{})), strings.Join(answer(r), "\n")} {
				if found := strings.Contains(strings.ToLower(text), "cross-check: "); found != (s.want != nil) {
					t.Errorf("cross-check reported: %v, in\n%s", found, text)
				}
				for _, w := range s.want {
					if !strings.Contains(text, w) {
						t.Errorf("missing %q in\n%s", w, text)
					}
				}
			}
		})
	}
}

// TestCrossCheckOfUnknownReason: both have the same result on the baseline.
func TestCrossCheckOfUnknownReason(t *testing.T) {
	r := generated(100e9, 100e9)
	for i, run := range r.Runs {
		if run.Tool == "iperf3" && run.Path != "host" {
			r.Runs[i].Metrics[result.Throughput] *= 2
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", 1)
	if got := crossChecks(r); len(got) != 1 || !strings.Contains(got[0], "both have the same result on host") {
		t.Errorf("got %q", got)
	}
}
