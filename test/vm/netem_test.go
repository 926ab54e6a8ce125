package vm

import (
	"slices"
	"strings"
	"testing"
)

// TestNetem sets network conditions on a kernel with netem. Waiting costs no time in a guest.
func TestNetem(t *testing.T) {
	o := forLinks.run(t, slices.Concat(networking, []string{"sch_netem"}),
		[]string{"sh", "ip", "nft", "nsenter", "sysctl"},
		Task{"fairlead/internal/lab/peer", []string{"-test.run=^TestNetem$"}})
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
	for _, path := range []string{"host", "ebpf", "macvlan", "device", "between_machines"} {
		if !strings.Contains(o.Said, "--- PASS: TestNetem/"+path+" ") {
			t.Errorf("no conditions: %s:\n%s", path, o.Said)
		}
	}
}
