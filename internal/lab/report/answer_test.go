package report

import (
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// TestAnswerCoversWholeTable: every path has one sentence. It names the greatest
// differences, and counts the other columns.
func TestAnswerCoversWholeTable(t *testing.T) {
	others := regexp.MustCompile(`(\d+) more`)
	for _, r := range []*result.Report{synthQuick.report(), synthPublish.report()} {
		for _, client := range clientsOf(r) {
			for _, path := range pathsOf(r, client)[1:] {
				var of []string
				for _, s := range answer(r) {
					about, rest, _ := strings.Cut(s, path+" is ")
					if rest != "" && (about == "" || about == "For a "+clientTitle(client)+", ") {
						of = append(of, rest)
					}
				}
				if len(of) != 1 {
					t.Fatalf("%s for a %s: the sentences %q, want one", path, clientTitle(client), of)
				}
				unnamed := 0
				for _, c := range comparedColumns(r, client) {
					if c.at(r, path) != nil && !names(of[0], c.title) {
						unnamed++
					}
				}
				for _, match := range others.FindAllStringSubmatch(of[0], -1) {
					n, _ := strconv.Atoi(match[1])
					unnamed -= n
				}
				if unnamed != 0 {
					t.Errorf("%s for a %s: %d columns are not in %q", path, clientTitle(client), unnamed, of[0])
				}
			}
		}
	}
}

// names reports whether a sentence lists a column.
func names(sentence, title string) bool {
	return regexp.MustCompile(`( in |, | and )` + regexp.QuoteMeta(title) + `( \(|[,;.]| and )`).MatchString(sentence)
}

// TestGreatestDifferenceComesFirst: the first sentence is about the path with the
// greatest difference, and its first figure is that difference.
func TestGreatestDifferenceComesFirst(t *testing.T) {
	all := answer(synthQuick.report())
	for i, want := range []string{"proxy is worse than host in CPU (2.96\u00a0×), ",
		"nat is worse than host in CPU (1.14\u00a0×), ", "routed is not distinguishable from host in "} {
		if len(all) != 3 || !strings.HasPrefix(all[i], want) {
			t.Errorf("sentence %d of %q does not begin with %q", i+1, all, want)
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
	text := conclude(r).Text + strings.Join(answer(r), " ")
	if strings.Contains(text, "distinguishable") || !strings.Contains(text, "too noisy to compare") &&
		!strings.Contains(text, "do not believe its ratios") {
		t.Errorf("got %s", text)
	}
}

// TestAnswerOfNoisySession: if no figure exceeds the noise, there is one sentence with
// the noise.
func TestAnswerOfNoisySession(t *testing.T) {
	one := synthQuick
	one.rounds, one.paths = 2, []string{"host", "routed"}
	r := one.report()
	for i := range r.Summary {
		r.Summary[i].Distinguishable, r.Summary[i].Noise = false, 1.13
	}
	if got := conclude(r).Text; len(answer(r)) != 0 || !strings.HasPrefix(got,
		"Doubtful run: do not believe its ratios, because two measurements of host itself differ by up to 113.0 %.") {
		t.Errorf("got %q, then %q", got, answer(r))
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
	if got := answer(r); len(got) != 2 || !strings.HasPrefix(got[0], "sure is worse than host in connect ") {
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

// TestMovesOfVirtualAddressesHaveAnAnswer: there is one sentence per event, with the
// unit.
func TestMovesOfVirtualAddressesHaveAnAnswer(t *testing.T) {
	r := &result.Report{Suite: "cluster", Paths: []string{"vip:keepalived", "vip:fairlead-1s"}}
	for i, path := range r.Paths {
		r.Runs = append(r.Runs, result.Run{Case: result.Case{Path: path, Client: result.Remote, Workload: "vip-killed"},
			Round: 1, Half: 1 - i, Metrics: map[result.Metric]float64{result.FailoverTime: 3.5 - 2*float64(i)}})
	}
	r.Summary = stats.Summarize(r.Runs, "vip:keepalived", 1)
	want := "For a client across the wire, failover time in the median round of virtual address killed: " +
		"3.50\u00a0s on vip:keepalived (worst round 3.50\u00a0s) and 1.50\u00a0s on vip:fairlead-1s " +
		"(worst round 1.50\u00a0s)."
	if got := answer(r); len(got) != 1 || got[0] != want {
		t.Errorf("got %q", got)
	}
	if text := htmlOf(t, r); !strings.Contains(text, "failover time in the median round") ||
		strings.Contains(text, " to ,") {
		t.Error("the page has no answer, or sentences about a baseline that does not exist")
	}
}
