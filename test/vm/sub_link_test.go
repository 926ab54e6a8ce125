package vm

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSubLinks creates sub-links of a parent that not every kernel supports: ipvlan and VLANs. The
// tests on the host's kernel cover macvlan.
func TestSubLinks(t *testing.T) {
	t.Parallel()
	subLinks(t, "Shim/^ipvlan", "LAN/^ipvlan", "OneParent/^ipvlan", "ModesOfIPvlan", "VLANOfTheParent")
}

// TestSubLinkLifecycle does the same while parents and sandboxes disappear and return.
func TestSubLinkLifecycle(t *testing.T) {
	t.Parallel()
	subLinks(t, "MTUFollows/^ipvlan", "DeletedParentReturns/^ipvlan", "SubLinkEnds/^ipvlan", "DieDuringAttach/^ipvlan")
}

// subLinks runs the engine's tests that match the patterns. Each pattern must match a test.
func subLinks(t *testing.T, patterns ...string) {
	t.Helper()
	tools := []string{"bridge", "cat", "grep", "ip", "nft", "sed", "sh", "sleep", "sort", "ss", "sysctl"}
	m := Machine{Kernel: debian(t), Modules: networking, Tools: tools}
	said, err := m.Test(t.Context(), "fairlead/internal/engine", "-test.run="+strings.Join(patterns, "|"), "-whole")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, pattern := range patterns {
		name, _, _ := strings.Cut(pattern, "/")
		passed := regexp.MustCompile(`^--- PASS: Test\w*` + name)
		if !slices.ContainsFunc(strings.Split(said, "\n"), passed.MatchString) {
			t.Errorf("no test of the engine matches %s", pattern)
		}
	}
}
