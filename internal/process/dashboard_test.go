package process

import "testing"

// TestActionsNeedADashboard: a flag without an effect is refused.
func TestActionsNeedADashboard(t *testing.T) {
	if err := (Dashboard{Actions: true}).Check(); err == nil {
		t.Error("actions are accepted without an address of the dashboard")
	}
	if err := (Dashboard{}).Check(); err != nil {
		t.Error(err)
	}
}
