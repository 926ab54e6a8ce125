package e2e_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// steps is the part of a session's JSON about hops.
type steps struct {
	Steps []struct {
		Name, Path, Over string
		Figures          []struct {
			Workload, Metric, Unit string
			Value, Added           float64
			Low                    float64 `json:"added_low"`
			High                   float64 `json:"added_high"`
			Rounds                 int
		}
	}
}

// TestWaterfall checks that the report contains every hop that this kernel has, with a path proof
// and the difference to the previous hop.
func TestWaterfall(t *testing.T) {
	r := newRoom(t)
	r.undisturbed("w.json", "lab", "run", "waterfall", "--rounds", "3", "--duration", "100ms").expect(t, 0, nil)
	var got steps
	if err := json.Unmarshal(r.read("w.json"), &got); err != nil {
		t.Fatal(err)
	}
	absent := map[string]bool{}
	for _, a := range decode(t, r.read("w.json")).Absent {
		absent[a.Path] = true
	}
	var names []string
	for _, s := range got.Steps {
		names = append(names, s.Path)
		if len(s.Figures) != 2 {
			t.Errorf("%s: %+v", s.Name, s.Figures)
		}
		adds := false
		for _, f := range s.Figures {
			if f.Rounds == 0 || f.Value <= 0 || f.Low > f.Added || f.High < f.Added {
				t.Errorf("%s: %+v", s.Name, f)
			}
			adds = adds || f.Added != 0 // latencies are rounded to histogram buckets, and may be equal
		}
		if adds == (s.Over == "") {
			t.Errorf("%s over %q: %+v", s.Name, s.Over, s.Figures)
		}
	}
	want := []string{"host", "hop-veth", "hop-bridge", "hop-br-netfilter", "hop-conntrack", "nat", "proxy", "ebpf"}
	if want = slices.DeleteFunc(want, func(p string) bool { return absent[p] }); !slices.Equal(names, want) {
		t.Errorf("steps %v, want %v", names, want)
	}
	for _, x := range decode(t, r.read("w.json")).Runs {
		if x.Proof == nil || !x.Proof.OK {
			t.Errorf("%s, %s: %+v %v", x.Path, x.Workload, x.Proof, x.Invalid)
		}
	}
}

// TestLiveFlows checks that the flows exist while the load runs, and that they are counted.
func TestLiveFlows(t *testing.T) {
	r := newRoom(t)
	r.undisturbed("f.json", append([]string{"lab", "run", "scale", "nat", "--workload",
		"tcp-rr-100k-flows,tcp-rr-1k-flows"}, short...)...).expect(t, 0, nil)
	for _, x := range decode(t, r.read("f.json")).Runs {
		if x.Proof == nil || !x.Proof.OK || strings.Contains(strings.Join(x.Invalid, " "), "live flows") {
			t.Errorf("%s, %s: %+v %v", x.Path, x.Workload, x.Proof, x.Invalid)
		}
	}
}
