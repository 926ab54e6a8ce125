package vm

import (
	"slices"
	"testing"
)

// TestPrograms loads the eBPF programs on the older kernel, whose verifier accepts less, and
// attaches them without TCX, which this kernel lacks.
func TestPrograms(t *testing.T) {
	services := slices.Concat(networking, []string{"nft_hash", "nft_numgen", "nft_reject_inet"})
	tools := []string{"awk", "cat", "grep", "ip", "nft", "sed", "sh", "ss", "sysctl"}
	// Skipped are tests that need the tools of other firewalls, /etc/protocols for names that nft
	// prints, or the sources: their results do not depend on the kernel. Also skipped are tests of sockets that
	// are bound but do not listen, which only newer kernels show, and tests that terminate a tunnel
	// with a program that only newer kernels accept. The programs for links without headers are
	// verified three times per test, and those of services by each test of their maps, which takes too
	// long here.
	m := &shared{open: debian, first: true}
	o := m.run(t, services, tools, Task{"fairlead/internal/kernel", []string{
		"-test.skip=^TestRulesOf|^TestDecidersOfLegacyTables$|^TestEveryKindHasABehaviour$|^TestGuardIsItsText$|^TestHalfOpenByTunnel$|^TestLinkWithoutHeaders$|^TestLocalRealEgressOutlivesItsProcess$" +
			"|^TestServiceMapsGrowOnDemand$|^TestPreparedServiceReplacesNoProgram$|^TestFirstServiceKeepsPublishes$"}})
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}
