package daemon_test

import (
	"testing"

	"fairlead/internal/daemon/daemontest"
)

// TestConformance runs the tests of the daemon without a host against a daemon.
func TestConformance(t *testing.T) {
	daemontest.Conform(t, func(t *testing.T) daemontest.External { return newWorld(t).start().Daemon })
}
