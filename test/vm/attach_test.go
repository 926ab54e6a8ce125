package vm

import (
	"strings"
	"testing"
)

// TestAttachPaths makes the laboratory build the paths that not every kernel supports, Fairlead's
// and those made by hand.
func TestAttachPaths(t *testing.T) {
	o := forLinks.run(t, networking, []string{"sh", "ip", "nft", "nsenter", "sysctl"},
		Task{"fairlead/internal/lab/peer", []string{"-test.run=^TestAttachedLinksHaveTheWiresMTU$/^(hand-)?(ipvlan|macvlan)$"}})
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
	for _, path := range []string{"/ipvlan", "/hand-ipvlan", "/macvlan", "/hand-macvlan"} {
		if !strings.Contains(o.Said, "--- PASS: TestAttachedLinksHaveTheWiresMTU"+path+" ") {
			t.Errorf("%s was not built:\n%s", path, o.Said)
		}
	}
}
