package vm

import (
	"slices"
	"strings"
	"testing"
)

// TestNetem sets network conditions on a kernel with netem. Waiting costs no time in a guest.
func TestNetem(t *testing.T) {
	t.Parallel()
	m := Machine{Kernel: debian(t), Modules: slices.Concat(networking, []string{"sch_netem"}),
		Tools: []string{"sh", "ip", "nft", "nsenter", "sysctl"}}
	said, err := m.Test(t.Context(), "fairlead/internal/lab/peer", "-test.run=^TestNetem$")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, path := range []string{"host", "ebpf", "macvlan", "device", "between_machines"} {
		if !strings.Contains(said, "--- PASS: TestNetem/"+path+" ") {
			t.Errorf("no conditions: %s:\n%s", path, said)
		}
	}
}
