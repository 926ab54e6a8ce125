package vm

import (
	"strings"
	"testing"
)

// TestAttachPaths makes the laboratory build the paths that not every kernel supports, Fairlead's
// and those made by hand.
func TestAttachPaths(t *testing.T) {
	t.Parallel()
	m := Machine{Kernel: debian(t), Modules: networking, Tools: []string{"sh", "ip", "nft", "nsenter", "sysctl"}}
	said, err := m.Test(t.Context(), "fairlead/internal/lab/peer",
		"-test.run=^TestAttachedLinksHaveTheWiresMTU$/^(hand-)?(ipvlan|macvlan)$")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, path := range []string{"/ipvlan", "/hand-ipvlan", "/macvlan", "/hand-macvlan"} {
		if !strings.Contains(said, "--- PASS: TestAttachedLinksHaveTheWiresMTU"+path+" ") {
			t.Errorf("%s was not built:\n%s", path, said)
		}
	}
}
