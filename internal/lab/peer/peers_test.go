package peer

import (
	"slices"
	"strings"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

func TestEveryPathHasAMaker(t *testing.T) {
	used := map[string]bool{}
	for _, p := range suite.Paths() {
		if Maker(p) == nil {
			t.Errorf("%s has no maker", p.Name)
		}
		used[p.Peer.Name] = true
	}
	for _, known := range peers {
		if !used[known.Name] {
			t.Errorf("no path is made by %s", known.Name)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown peer has a maker")
		}
	}()
	Maker(suite.Path{Peer: suite.Peer{Name: "carrier-pigeon"}})
}

// TestPeersNamePackages: what is not installed is reported with the package to
// install.
func TestPeersNamePackages(t *testing.T) {
	for _, p := range suite.Paths() {
		needs := Maker(p).Needs()
		for _, program := range needs.Programs {
			if program.Name == "" || (program.Package == "") == (program.Source == "") {
				t.Errorf("%s: %+v", p.Name, program)
			}
		}
		if p.ByOthers() && len(needs.Programs) == 0 {
			t.Errorf("%s needs no program of others", p.Name)
		}
	}
}

// TestHandRulesAddNoOtherHop: every rule is a hop, and one that matches connection
// state enables conntrack.
func TestHandRulesAddNoOtherHop(t *testing.T) {
	for name, want := range map[string]string{
		"hop-veth": "", "hop-bridge": "", "hop-br-netfilter": "", "hop-conntrack": "ct state",
	} {
		p, _ := suite.FindPath(name)
		if got := hopRules(p); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	got := dnatRules(rig.AddressesOf(result.IPv4))
	if strings.Count(got, "dnat to") != 2 || strings.Contains(got, "ct state") {
		t.Errorf("hand-dnat: %q", got)
	}
}

// TestCNINeedsThePluginsOfThePath: portmap is needed only to publish ports.
func TestCNINeedsThePluginsOfThePath(t *testing.T) {
	for name, want := range map[string][]string{
		"cni-bridge":  {"cni/static", "cni/bridge", "cni/portmap", "iptables"},
		"cni-ptp":     {"cni/static", "cni/ptp"},
		"cni-macvlan": {"cni/static", "cni/macvlan"},
	} {
		p, _ := suite.FindPath(name)
		var got []string
		for _, program := range Maker(p).Needs().Programs {
			got = append(got, program.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s needs %q, want %q", name, got, want)
		}
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

// TestUnusableBinaryIsReported: a binary that cannot run in a container is
// reported before an engine is started for it.
func TestUnusableBinaryIsReported(t *testing.T) {
	for program, want := range map[string]string{"/bin/sh": "dynamically linked", "/etc/passwd": "bad magic number"} {
		if got := notStatic(program); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", program, got, want)
		}
	}
	for name, want := range map[string]bool{
		"docker:publish": true, "docker:fairlead-ebpf": true, "bridge": false, "cni-bridge": false,
	} {
		p, _ := suite.FindPath(name)
		if got := Maker(p).Needs().Static; got != want {
			t.Errorf("%s needs a static binary: %v, want %v", name, got, want)
		}
	}
}
