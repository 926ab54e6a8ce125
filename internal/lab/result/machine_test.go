package result

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDifferentFeatures: machines differ in a feature that one of them lacks, but not in one that only one of the kernels
// was asked about.
func TestDifferentFeatures(t *testing.T) {
	machine := func(part string, features map[string]bool) Machine {
		return Machine{Part: part, Host: Host{Features: features}}
	}
	a := machine("client", map[string]bool{"nat": true, "ebpf": true, "vxlan": false})
	b := machine("server", map[string]bool{"nat": false, "vxlan": false, "ipvlan": true})
	if diff := cmp.Diff([]string{"feature nat: true (client), false (server)"}, Differences(a, b)); diff != "" {
		t.Error(diff)
	}
}
