package vm

import (
	"slices"
	"testing"
)

// TestPrograms loads our eBPF programs on the older kernel, whose verifier
// knows less, and attaches them without TCX, which it lacks.
func TestPrograms(t *testing.T) {
	services := slices.Concat(networking, []string{"nft_hash", "nft_numgen", "nft_reject_inet"})
	m := Machine{Kernel: debian(t), Modules: services, Tools: []string{"awk", "cat", "grep", "ip", "nft", "sed", "sh", "ss", "sysctl"}}
	// What other firewalls say needs their tools, and is read alike everywhere; so
	// is what nft says, which needs /etc/protocols for some names. A socket that is
	// bound and does not listen is shown by newer kernels alone, and the end of a
	// tunnel is a program that they alone take. Those for a link without headers are
	// verified thrice for a test, which takes long here.
	said, err := m.Test(t.Context(), "fairlead/internal/kernel", "-test.skip=^TestRulesOf|^TestGuardIsItsText$|^TestBoundBy$|^TestHalfOpenByTunnel$|^TestLinkWithoutHeaders$|^TestLocalRealEgressOutlivesItsProcess$")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}
