package suite

import (
	"slices"
	"testing"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

func TestSuitesNameWhatThereIs(t *testing.T) {
	for _, s := range Suites() {
		if s.Question == "" || s.Rounds < 5 || s.Duration <= 0 || !slices.Contains(s.Paths, s.Baseline) {
			t.Errorf("%s: %+v", s.Name, s)
		}
		for _, name := range s.Paths {
			p, ok := FindPath(name)
			if !ok {
				t.Errorf("%s: there is no path %q", s.Name, name)
			}
			for _, c := range s.Clients {
				if name == s.Baseline && !p.Reaches(c) {
					t.Errorf("%s: the baseline leads nowhere for %s", s.Name, c)
				}
			}
		}
		for _, w := range s.Workloads {
			w.Spec.Duration = time.Second
			w.Spec.FlowAddrs = nil
			w.Spec.Flows = 0 // whose addresses the runner gives
			if _, err := w.Spec.Normal(); err != nil || result.Kind(w.Name) == "" {
				t.Errorf("%s: workload %s: %v", s.Name, w.Name, err)
			}
		}
	}
}

func TestWorkloadsCanBeAskedForByName(t *testing.T) {
	for _, s := range Suites() {
		for _, w := range s.Workloads {
			if !slices.ContainsFunc(Workloads(), func(o Workload) bool { return o.Name == w.Name }) {
				t.Errorf("%s: %s is not among the workloads", s.Name, w.Name)
			}
		}
	}
}

// TestEachStepAddsOneHop holds the steps that are made by hand to one
// difference each, after the first.
func TestEachStepAddsOneHop(t *testing.T) {
	s, _ := Find("waterfall")
	for i, step := range s.Steps {
		if step.Path != s.Paths[i] || i > 0 && step.Over == "" {
			t.Errorf("step %+v of path %s", step, s.Paths[i])
		}
		p, _ := FindPath(step.Path)
		before, _ := FindPath(step.Over)
		if p.Peer != HandHops || before.Peer != HandHops {
			continue
		}
		differ := 0
		for _, d := range []bool{p.Driver != before.Driver, p.Driver == before.Driver && p.Filter != before.Filter, p.Tracked != before.Tracked} {
			if d {
				differ++
			}
		}
		if differ != 1 {
			t.Errorf("step %s differs from %s in %d things", step.Path, step.Over, differ)
		}
	}
}

func TestWhatIsMadeByHandServesClientsAcrossTheWire(t *testing.T) {
	for _, p := range Paths() {
		if p.ByHand() && (p.Reaches(result.Local) || p.Reaches(result.Peer) || !p.Reaches(result.Remote)) {
			t.Errorf("%s serves others", p.Name)
		}
		if p.Via == model.ViaSocket && p.Driver != model.DriverHost {
			t.Errorf("%s: sockets are led in the host's namespace only", p.Name)
		}
	}
}
