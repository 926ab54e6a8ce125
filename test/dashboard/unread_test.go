package dashboard_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/plan"
)

// sealed is a host whose kernel cannot be probed.
type sealed struct{ room }

func (*sealed) Kernel(context.Context) (plan.Facts, error) {
	return plan.Facts{}, errors.New("probe kernel: not permitted")
}

// TestWhatIsNotReadIsNotShown: without a daemon, no page says that there is nothing, or that nothing is wrong.
func TestWhatIsNotReadIsNotShown(t *testing.T) {
	at := served(t, newFake(t, nil), func(o *dashboard.Options) {
		o.Daemon, o.Host = admin.NewClient(filepath.Join(t.TempDir(), "none")), &sealed{}
	})
	for _, path := range pages {
		_, got := get(t, at.URL+path)
		for _, claim := range []string{"There is no", "Nothing that this page reads is wrong", "What is wrong: 0",
			"Nothing is attached", "No port is published", "Nothing happened", "can be built", "cannot be built"} {
			if strings.Contains(got, claim) && !strings.Contains(path, "explain") {
				t.Errorf("%s says %q", path, claim)
			}
		}
	}
}
