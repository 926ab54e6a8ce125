package flow

import (
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/model"
)

// TestPromisesOfSandboxesAway checks that an explanation does not promise the clients' addresses for a sandbox whose
// default route is on another network: they are masqueraded.
func TestPromisesOfSandboxesAway(t *testing.T) {
	for away, want := range map[bool]string{false: "lan-source: yes",
		true: "lan-source: no (clients are masqueraded"} {
		m := promises{client: lan}
		at := netip.MustParseAddrPort("192.0.2.10:8080")
		if text := m.quotes(model.ViaNAT, model.DriverBridge, away, at); !strings.Contains(text, want) {
			t.Errorf("away %t: %q, want %q in it", away, text, want)
		}
	}
}
