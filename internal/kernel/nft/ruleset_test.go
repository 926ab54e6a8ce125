package nft

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLegacyFrames: the rules of legacy ebtables cannot be read, and Ruleset says so.
func TestLegacyFrames(t *testing.T) {
	loaded := modules
	t.Cleanup(func() { modules = loaded })
	modules = t.TempDir()
	h := openTest(t)
	for _, name := range []string{"bridge", "ebtable_filter"} {
		if err := os.Mkdir(filepath.Join(modules, name), 0o755); err != nil {
			t.Fatal(err)
		}
		_, unread, err := h.Ruleset()
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(unread, func(s string) bool { return strings.Contains(s, "legacy ebtables") })
		if found != (name == "ebtable_filter") {
			t.Errorf("with the module %s: %q", name, unread)
		}
	}
}
