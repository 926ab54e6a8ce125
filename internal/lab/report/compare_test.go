package report

import (
	"bytes"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/stats"
)

// changed scales one path's main figure in a session.
func changed(r *result.Report, path string, m result.Metric, by float64) *result.Report {
	for _, run := range r.Runs {
		if _, ok := run.Metrics[m]; ok && run.Path == path {
			run.Metrics[m] *= by
		}
	}
	r.Summary = stats.Summarize(r.Runs, "host", r.Seed)
	return r
}

func TestCompareFindsWhatChanged(t *testing.T) {
	old := synthQuick.report()
	recent := changed(synthQuick.report(), "proxy", result.Throughput, 1.25)
	recent = changed(recent, "nat", result.LatencyP50, 1.3)
	told := map[string]string{}
	for _, c := range Compare(old, recent, 1).Changes {
		if c.Verdict != "≈" {
			told[c.Path+" "+string(c.Metric)] = c.Verdict
			if c.Low > c.Ratio || c.High < c.Ratio {
				t.Errorf("%+v", c)
			}
		}
	}
	want := map[string]string{"proxy throughput": "faster", "nat latency_p50": "slower"}
	if len(told) != len(want) || told["proxy throughput"] != "faster" || told["nat latency_p50"] != "slower" {
		t.Errorf("told %v, want %v", told, want)
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

func TestCompareOfStrangers(t *testing.T) {
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
			t.Errorf("one round on either side tells nothing: %+v", c)
		}
	}
}
