package daemontest_test

import (
	"testing"

	"fairlead/internal/daemon/daemontest"
)

func TestConformance(t *testing.T) {
	daemontest.Conform(t, func(*testing.T) daemontest.External { return &daemontest.Daemon{} })
}
