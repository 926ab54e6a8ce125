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
	subLinks(t, "Shim/^ipvlan", "LAN/^ipvlan", "OneParent/^ipvlan", "ModesOfIPvlan", "VLANOfTheParent")
}

// TestSubLinkLifecycle does the same while parents and sandboxes disappear and return.
func TestSubLinkLifecycle(t *testing.T) {
	subLinks(t, "MTUFollows/^ipvlan", "DeletedParentReturns/^ipvlan", "SubLinkEnds/^ipvlan", "DieDuringAttach/^ipvlan")
}

// subLinks runs the engine's tests that match the patterns. Each pattern must match a test.
func subLinks(t *testing.T, patterns ...string) {
	t.Helper()
	tools := []string{"bridge", "cat", "grep", "ip", "nft", "sed", "sh", "sleep", "sort", "ss", "sysctl"}
	o := forLinks.run(t, networking, tools,
		Task{"fairlead/internal/engine", []string{"-test.run=" + strings.Join(patterns, "|"), "-whole"}})
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
	for _, pattern := range patterns {
		name, _, _ := strings.Cut(pattern, "/")
		passed := regexp.MustCompile(`^--- PASS: Test\w*` + name)
		if !slices.ContainsFunc(strings.Split(o.Said, "\n"), passed.MatchString) {
			t.Errorf("no test of the engine matches %s", pattern)
		}
	}
}
