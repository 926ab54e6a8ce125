package runner

import (
	"context"
	"errors"
	"testing"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

// TestSessionThatCannotBeBuilt: the error is returned, and what was built is removed.
func TestSessionThatCannotBeBuilt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := suite.Suite{Baseline: "host", Paths: []string{"host"}, Clients: []result.Client{result.Remote}}
	if _, err := Run(ctx, Options{Suite: s}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
