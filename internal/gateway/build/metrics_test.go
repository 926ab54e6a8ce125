package build

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestPanicOfMetrics: the registry collects on goroutines of its own.
func TestPanicOfMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	g := &Objects{kept: newKept()}
	g.kept.services["s"] = nil
	registry.MustRegister(serversUp{g})
	_, _ = registry.Gather() // it must return
}
