package report

import (
	"bytes"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// changed multiplies one path's metric in a session.
func changed(r *result.Report, path string, m result.Metric, by float64) *result.Report {
	for _, run := range r.Runs {
		if _, ok := run.Metrics[m]; ok && run.Path == path {
			run.Metrics[m] *= by
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", r.Seed)
	return r
}

func TestCompareFindsChanges(t *testing.T) {
	old := synthQuick.report()
	recent := changed(synthQuick.report(), "proxy", result.Throughput, 1.25)
	recent = changed(recent, "nat", result.LatencyP50, 1.3)
	verdicts := map[string]string{}
	for _, c := range Compare(old, recent, 1).Changes {
		if c.Verdict == "faster" || c.Verdict == "slower" {
			verdicts[c.Path+" "+string(c.Metric)] = c.Verdict
			if c.Low > c.Ratio || c.High < c.Ratio {
				t.Errorf("%+v", c)
			}
		}
	}
	want := map[string]string{"proxy throughput": "faster", "nat latency_p50": "slower"}
	if !maps.Equal(verdicts, want) {
		t.Errorf("got %v, want %v", verdicts, want)
	}
}

// TestCompareWithBusierSession: all paths are slower, including the baseline, so no
// path has changed.
func TestCompareWithBusierSession(t *testing.T) {
	for seed := range uint64(3) {
		idle, busy := synthQuick.report(), synthQuick.report()
		rng := rand.New(rand.NewPCG(seed, 1))
		for _, run := range busy.Runs {
			slower := 0.55 * math.Exp(0.03*rng.NormFloat64())
			for m := range run.Metrics {
				if result.Units[m].Better == result.Lower {
					run.Metrics[m] /= slower
				} else {
					run.Metrics[m] *= slower
				}
			}
		}
		busy.Summary = stats.Summarize(busy.Runs, "host", busy.Seed)
		compared := 0
		for _, c := range Compare(idle, busy, 1).Changes {
			switch {
			case c.Path == "host" || c.Metric == result.Loss || c.Metric == result.IdleShare: // the shares have bounds
			case c.Verdict != "≈":
				t.Errorf("seed %d: %s %s: %s, %.3f [%.3f %.3f]", seed, c.Path, c.Metric, c.Verdict, c.Ratio, c.Low,
					c.High)
			default:
				compared++
			}
		}
		if compared < 25 {
			t.Errorf("%d figures were compared", compared)
		}
	}
}

func TestCompareWithAnotherBaseline(t *testing.T) {
	a, b := synthQuick.report(), synthQuick.report()
	b.Summary = stats.Summarize(b.Runs, "nat", b.Seed)
	c := Compare(a, b, 1)
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "host before, nat now") {
		t.Errorf("warnings %q", c.Warnings)
	}
	for _, change := range c.Changes {
		if change.Verdict != "" || change.Ratio != 0 {
			t.Errorf("ratios to different baselines were compared: %+v", change)
		}
	}
}

// TestCompareWithoutBaseline compares two sessions of iperf3.
func TestCompareWithoutBaseline(t *testing.T) {
	sessions := [2]*result.Report{}
	for i := range sessions {
		r := &result.Report{Suite: "iperf3"}
		for round := range 6 {
			r.Runs = append(r.Runs, result.Run{Case: result.Case{Path: "x", Client: result.Remote, Workload: "tcp-bulk",
				Tool: "iperf3"}, Round: round + 1,
				Metrics: map[result.Metric]float64{result.Throughput: float64(10-5*i) + 0.01*float64(round)}})
		}
		r.Summary = stats.Summarize(r.Runs, "", 0)
		sessions[i] = r
	}
	c := Compare(sessions[0], sessions[1], 1)
	if len(c.Changes) != 1 || c.Changes[0].Verdict != "slower" || len(c.Warnings) != 1 ||
		!strings.Contains(c.Warnings[0], "no baseline") {
		t.Errorf("%+v", c)
	}
}

func TestCompareTable(t *testing.T) {
	old := synthQuick.report()
	recent := changed(synthQuick.report(), "proxy", result.Throughput, 1.25)
	recent.Host.Kernel, recent.Duration = "6.19.0", 5
	recent.Host.Settings = map[string]string{"net.core.default_qdisc": "fq"}
	var out bytes.Buffer
	if err := CompareTable(&out, Compare(old, recent, 1), Options{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "compare.table", out.Bytes())
}

func TestCompareWithoutCommonFigures(t *testing.T) {
	var out bytes.Buffer
	c := Compare(&result.Report{Suite: "quick"}, synthQuick.report(), 1)
	if err := CompareTable(&out, c, Options{}); err != nil || !strings.Contains(out.String(), "no figure in common") {
		t.Errorf("%s (%v)", out.String(), err)
	}
}

func TestCompareWithOneRound(t *testing.T) {
	one := synthQuick
	one.rounds = 1
	a, b := one.report(), changed(one.report(), "nat", result.Throughput, 3)
	for _, c := range Compare(a, b, 1).Changes {
		if c.Path != "host" && c.Verdict != "≈" {
			t.Errorf("a change was found with one round per session: %+v", c)
		}
	}
}
