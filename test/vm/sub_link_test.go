package vm

import "testing"

// TestBranches lets sandboxes branch from a parent in the ways that not every
// kernel has: ipvlan, and VLANs. Of macvlan the host's own kernel has shown it.
func TestBranches(t *testing.T) {
	branches(t, "Shim/^ipvlan|LAN/^ipvlan|OneParent/^ipvlan|ModesOfIPvlan|AVLANOfTheParent")
}

// TestBranchesComeAndGo does it with parents and sandboxes that go, and come
// back.
func TestBranchesComeAndGo(t *testing.T) {
	branches(t, "MTUFollows/^ipvlan|ParentThatGoes/^ipvlan|ABranchEnds/^ipvlan|WhileTheyBranch/^ipvlan")
}

// branches runs those tests of the engine.
func branches(t *testing.T, tests string) {
	t.Helper()
	m := Machine{Kernel: debian(t), Modules: networking, Tools: []string{"ip", "nft", "sed", "sh", "sleep", "sort", "grep", "ss", "sysctl"}}
	said, err := m.Test(t.Context(), "fairlead/internal/engine", "-test.run="+tests, "-whole")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}
