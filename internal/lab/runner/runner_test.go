package runner

import (
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

func TestStepsSkipMissingPaths(t *testing.T) {
	waterfall, _ := suite.Find("waterfall")
	s := &session{Options: Options{Suite: waterfall}, rigs: map[string]*rig{}}
	for _, name := range []string{"host", "hop-veth", "hop-conntrack", "nat"} {
		s.rigs[name] = &rig{}
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

func TestUnavailableReturnsReason(t *testing.T) {
	facts := plan.Facts{Missing: map[plan.Feature]string{plan.FeatureBridgeFilter: "the module is not loaded"}}
	for _, c := range []struct {
		path suite.Path
		want string
	}{
		{suite.Path{Driver: model.DriverBridge, Via: model.ViaNAT}, ""},
		{suite.Path{Driver: model.DriverBridge, Filter: model.FilterOn}, "br_netfilter: the module is not loaded"},
		{suite.Path{Driver: model.DriverBridge, Via: "carrier-pigeon"}, "no publish mode carrier-pigeon"},
	} {
		if got := Unavailable(c.path, facts, ""); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%+v: %q, want %q", c.path, got, c.want)
		}
	}
}

// TestMissingReportsUnusableBinary: a binary that cannot run in a container is
// reported before an engine is started for it.
func TestMissingReportsUnusableBinary(t *testing.T) {
	docker, _ := suite.FindPath("docker:publish")
	for _, c := range []struct {
		path    suite.Path
		program string
		want    string
	}{
		{docker, "/bin/sh", "dynamically linked"},
		{docker, "/etc/passwd", "bad magic number"},
		{suite.Path{Driver: model.DriverBridge}, "/bin/sh", ""},
	} {
		if got := undockable(c.path, c.program); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s with %s: %q, want %q", c.path.Name, c.program, got, c.want)
		}
	}
}

func TestFewerFlowsFailTheProof(t *testing.T) {
	for _, c := range []struct {
		want, have int
		ok         bool
	}{{0, 0, true}, {1000, 1001, true}, {1000, 999, false}} {
		p := &result.Proof{Counter: "bytes on link x", OK: true}
		proveFlows(p, c.want, counters{flows: c.have})
		if p.OK != c.ok {
			t.Errorf("%d of %d flows: %+v", c.have, c.want, p)
		}
	}
}

func TestFailedProofNamesItsCounter(t *testing.T) {
	for want, p := range map[string]result.Proof{
		"bytes on link x":         {Counter: "bytes on link x", Want: 2, Got: 1, Absent: "bytes through the proxy"},
		"bytes through the proxy": {Counter: "bytes on link x", Want: 2, Got: 2, Absent: "bytes through the proxy", AbsentGot: 1},
	} {
		if got := missed(&p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestHandRulesAddNoOtherHop: every rule is a hop, and one that matches connection
// state enables conntrack.
func TestHandRulesAddNoOtherHop(t *testing.T) {
	for name, want := range map[string]string{"hop-veth": "", "hop-bridge": "", "hop-br-netfilter": "", "hop-conntrack": "ct state", "hand-dnat": "dnat to"} {
		p, _ := suite.FindPath(name)
		if got := handRules(p); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
