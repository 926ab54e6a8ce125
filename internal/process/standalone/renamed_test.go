package standalone

import (
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestRenamedOnce checks that objects are renamed in one change, and not again when another provider or a
// certificate changes.
func TestRenamedOnce(t *testing.T) {
	parts := map[string]Source{"docker": {Config: model.Config{Renamed: []model.Renamed{
		{Kind: "router", From: "a@docker", To: "a.shop@docker"}}}}, "file": {}}
	for _, want := range []int{1, 0} {
		if all, _ := Together(parts); len(all.Renamed) != want {
			t.Errorf("renamed: %v, want %d", all.Renamed, want)
		}
	}
}
