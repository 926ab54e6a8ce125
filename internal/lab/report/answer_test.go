package report

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// TestAnswerCoversWholeTable: every path has a sentence that names every column.
func TestAnswerCoversWholeTable(t *testing.T) {
	for _, r := range []*result.Report{synthQuick.report(), synthPublish.report()} {
		for _, client := range clientsOf(r) {
			for _, path := range pathsOf(r, client)[1:] {
				sentence := ""
				for _, s := range answer(r) {
					if strings.HasPrefix(s, "For a "+clientTitle(client)+", "+path+" compared with host: ") {
						sentence += s
					}
				}
				for _, c := range headColumns(r, client) {
					if c.at(r, path) != nil && !strings.Contains(sentence, c.title) {
						t.Errorf("%s for a %s: nothing about %s in %q", path, clientTitle(client), c.title, sentence)
					}
				}
			}
		}
	}
}

// TestNoiseIsNotEquality: if the noise is as great as the figures, no figure is
// reported as not distinguishable.
func TestNoiseIsNotEquality(t *testing.T) {
	r := synthQuick.report()
	rng := rand.New(rand.NewPCG(1, 1))
	for _, run := range r.Runs {
		for m := range run.Metrics {
			run.Metrics[m] *= math.Exp(1.5 * rng.NormFloat64())
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", r.Seed)
	text := strings.Join(answer(r), " ")
	if strings.Contains(text, "distinguishable") || !strings.Contains(text, "too noisy to decide") &&
		!strings.Contains(text, "the noise is too great") {
		t.Errorf("got %s", text)
	}
}

// TestAnswerOfNoisySession: if no figure exceeds the noise, the answer is one sentence
// with the noise.
func TestAnswerOfNoisySession(t *testing.T) {
	one := synthQuick
	one.rounds, one.paths = 2, []string{"host", "routed"}
	r := one.report()
	for i := range r.Summary {
		r.Summary[i].Distinguishable, r.Summary[i].Noise = false, 1.13
	}
	if got := answer(r); len(got) != 1 || !strings.Contains(got[0],
		"the noise is too great to find out what the paths cost: two measurements of host itself differ by up to 113.0 %") {
		t.Errorf("got %q", got)
	}
}

// TestGreatestCostIsNotTheNoisiest: a precise figure is preferred to an uncertain
// one.
func TestGreatestCostIsNotTheNoisiest(t *testing.T) {
	row := func(path string, ratio, low, high float64) result.Summary {
		return result.Summary{Case: result.Case{Path: path, Client: result.Remote, Workload: "tcp-crr",
			Tool: result.OwnTool}, Metric: result.ConnectionRate,
			Better: result.Higher, Value: 1, Baseline: "host", Ratio: ratio, RatioLow: low, RatioHigh: high, Rounds: 6,
			Distinguishable: path != "host"}
	}
	r := &result.Report{Paths: []string{"host", "sure", "noisy"},
		Summary: []result.Summary{row("host", 1, 1, 1), row("sure", 0.4, 0.38, 0.42), row("noisy", 0.3, 0.1, 0.9)}}
	if got := worstSentence(r); len(got) != 1 || !strings.Contains(got[0], "connect on sure") {
		t.Errorf("got %q", got)
	}
}

// TestWaterfallAnswersWithSteps: the answer lists what the steps add, and no
// throughput at a fixed rate, which is the same on every path.
func TestWaterfallAnswersWithSteps(t *testing.T) {
	text := strings.Join(answer(synthWaterfall.report()), "\n")
	for _, want := range []string{"round trip, median latency: a difference for", "+ proxy +10.",
		"bulk 2g, CPU per GB:"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "runs at") || strings.Contains(text, "throughput") {
		t.Errorf("the answer mentions a throughput at a fixed rate:\n%s", text)
	}
}

// TestFailoverAnswerCountsFailedRequests: the only sentence about failovers is the one
// with the failed requests.
func TestFailoverAnswerCountsFailedRequests(t *testing.T) {
	got := answer(failovers())
	want := "For a client across the wire, failed requests in the median round of failover killed: 3 000 on routed (worst round 3 000), " +
		"0 on balance:ebpf (worst round 0) and 503 on balance:nft (worst round 702)."
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %q", got)
	}
}
