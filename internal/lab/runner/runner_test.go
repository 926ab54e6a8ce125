package runner

import (
	"slices"
	"testing"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

func TestStepsSkipMissingPaths(t *testing.T) {
	waterfall, _ := suite.Find("waterfall")
	s := &session{Options: Options{Suite: waterfall}, existing: map[string]*built{}}
	for _, name := range []string{"host", "hop-veth", "hop-conntrack", "nat"} {
		s.existing[name] = &built{}
	}
	var got []string
	for _, step := range s.steps() {
		got = append(got, step.Path+" over "+step.Over)
	}
	want := []string{"host over ", "hop-veth over host", "hop-conntrack over hop-veth", "nat over hop-conntrack"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFewerFlowsFailTheProof(t *testing.T) {
	for _, c := range []struct {
		want, have int
		ok         bool
	}{{0, 0, true}, {1000, 1001, true}, {1000, 999, false}} {
		p := &result.Proof{Counter: "bytes on link x", OK: true}
		rig.ProveFlows(p, c.want, rig.Counters{Flows: c.have})
		if p.OK != c.ok {
			t.Errorf("%d of %d flows: %+v", c.have, c.want, p)
		}
	}
}

func TestFailedProofNamesItsCounter(t *testing.T) {
	for want, p := range map[string]result.Proof{
		"bytes on link x": {Counter: "bytes on link x", Want: 2, Got: 1, Absent: "bytes through the proxy"},
		"bytes through the proxy": {Counter: "bytes on link x", Want: 2, Got: 2,
			Absent: "bytes through the proxy", AbsentGot: 1},
	} {
		if got := missed(&p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestWindowsWithoutAnswersAreInvalid: a rate of 0 would be a figure about the path.
func TestWindowsWithoutAnswersAreInvalid(t *testing.T) {
	for answers, valid := range map[uint64]bool{0: false, 1: true} {
		var run result.Run
		judge(&run, load.Measurement{Transactions: answers, Latency: &result.Latency{Count: answers}})
		if got := len(run.Invalid) == 0; got != valid {
			t.Errorf("%d answers: %q", answers, run.Invalid)
		}
	}
}
