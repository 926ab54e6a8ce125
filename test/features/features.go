// Package features tests once per process which features the kernel has. It does not test those of eBPF programs
// (kernel.Host.Lacks): the kernel verifies about 300,000 instructions, which takes most of the time of a test that sets
// up a host.
package features

import (
	"maps"
	"sync"
	"testing"

	"fairlead/internal/kernel"
	"fairlead/internal/plan"
)

var probe = sync.OnceValues(func() (plan.Facts, error) { return kernel.ProbeWithoutPrograms() })

// Facts returns what kernel.ProbeWithoutPrograms does. The caller may change the facts.
func Facts(t testing.TB) plan.Facts {
	t.Helper()
	facts, err := probe()
	if err != nil {
		t.Fatal(err)
	}
	facts.Missing = maps.Clone(facts.Missing)
	return facts
}
