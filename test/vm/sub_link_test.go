package vm

import "testing"

// TestSubLinks creates sub-links of a parent that not every kernel supports: ipvlan and VLANs. The
// tests on the host's kernel cover macvlan.
func TestSubLinks(t *testing.T) {
	subLinks(t, "Shim/^ipvlan|LAN/^ipvlan|OneParent/^ipvlan|ModesOfIPvlan|AVLANOfTheParent")
}

// TestSubLinkLifecycle does the same while parents and sandboxes disappear and return.
func TestSubLinkLifecycle(t *testing.T) {
	subLinks(t, "MTUFollows/^ipvlan|ParentThatGoes/^ipvlan|ABranchEnds/^ipvlan|WhileTheyBranch/^ipvlan")
}

// subLinks runs the engine's tests that match a pattern.
func subLinks(t *testing.T, tests string) {
	t.Helper()
	m := Machine{Kernel: debian(t), Modules: networking, Tools: []string{"ip", "nft", "sed", "sh", "sleep", "sort", "grep", "ss", "sysctl"}}
	said, err := m.Test(t.Context(), "fairlead/internal/engine", "-test.run="+tests, "-whole")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}
