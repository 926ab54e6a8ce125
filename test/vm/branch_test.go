package vm

import "testing"

// TestBranches lets sandboxes branch from a parent in the ways that not every
// kernel has: ipvlan, and VLANs.
func TestBranches(t *testing.T) {
	m := Machine{Kernel: debian(t), Modules: networking, Tools: []string{"ip", "nft", "sed", "sh", "sort", "grep", "ss", "sysctl"}}
	said, err := m.Test(t.Context(), "fairlead/internal/engine", "-test.run=Shim|LAN|Parent|Modes|Branch", "-whole")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}
