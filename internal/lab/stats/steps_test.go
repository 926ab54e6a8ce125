package stats

import (
	"testing"

	"fairlead/internal/lab/result"
)

// stepped returns rounds of round trips whose cost drifts from round to round by much
// more than a hop adds. Differences within a round do not include that drift.
func stepped(rounds int, added map[string]float64) []result.Run {
	var runs []result.Run
	for i := range rounds {
		drift := 5e-6 * float64(i)
		for path, more := range added {
			jitter := 0.1e-6 * float64((i*7+len(path))%5-2)
			r := result.Run{
				Case:  result.Case{Path: path, Client: result.Remote, Workload: "tcp-rr", Tool: result.OwnTool},
				Round: i + 1, Metrics: map[result.Metric]float64{result.LatencyP50: 20e-6 + drift + more + jitter},
			}
			if path == "host" {
				r.Half = 1
				runs = append(runs, r)
				r.Half = 2
			}
			runs = append(runs, r)
		}
	}
	return runs
}

var ladder = []result.Step{{Name: "host", Path: "host"}, {Name: "+ veth", Path: "veth", Over: "host"},
	{Name: "+ twin", Path: "twin", Over: "veth"}}

func TestStepsAddUpWithinRounds(t *testing.T) {
	runs := stepped(12, map[string]float64{"host": 0, "veth": 2e-6, "twin": 2e-6})
	steps := Steps(runs, "host", ladder, 7)
	for i, want := range []struct {
		added           float64
		distinguishable bool
	}{{0, false}, {2e-6, true}, {0, false}} {
		f := steps[i].Figures[0]
		if f.Low > want.added || f.High < want.added || f.Distinguishable != want.distinguishable || f.Rounds != 12 {
			t.Errorf("%s: %+v, want %g added, distinguishable %v", steps[i].Name, f, want.added, want.distinguishable)
		}
		if f.Metric != result.LatencyP50 || f.Unit != "s" || f.Value < 40e-6 {
			t.Errorf("%s: %+v", steps[i].Name, f)
		}
	}
	if ladder[0].Figures != nil {
		t.Error("the caller's steps were changed")
	}
}

func TestStepsSkipInvalidRounds(t *testing.T) {
	runs := stepped(8, map[string]float64{"host": 0, "veth": 2e-6, "twin": 2e-6})
	for i := range runs {
		if runs[i].Path == "veth" && runs[i].Round < 4 {
			runs[i].Invalid = []string{"steal"}
		}
	}
	steps := Steps(runs, "host", ladder, 7)
	for i, rounds := range []int{8, 5, 5} {
		if got := steps[i].Figures[0].Rounds; got != rounds {
			t.Errorf("%s: %d rounds, want %d", steps[i].Name, got, rounds)
		}
	}
}

func TestStepsOfOneRoundAreNotDistinguishable(t *testing.T) {
	for _, s := range Steps(stepped(1, map[string]float64{"host": 0, "veth": 2e-6, "twin": 2e-6}), "host", ladder, 7) {
		if s.Figures[0].Distinguishable {
			t.Errorf("%s: %+v", s.Name, s.Figures[0])
		}
	}
}
