package vm

import (
	"slices"
	"strings"
	"testing"
)

// skipped are the tests of package kernel that do not run on the older kernel.
var skipped = []string{
	// These need the tools of other firewalls, conntrack's helper for FTP, /etc/protocols for names that nft prints, or
	// the sources. Their results do not depend on the kernel.
	"TestRulesOf.*", "TestDecidersOf.*", "TestEveryKindHasABehaviour", "TestGuardIsItsText",
	// Only newer kernels show sockets that are bound but do not listen, and only they accept the program that
	// terminates a tunnel.
	"TestHalfOpenByTunnel", "TestLocalRealEgressOutlivesItsProcess",
	// The programs for links without headers are verified three times per test, and those of services by each test of
	// their maps, which takes too long here.
	"TestLinkWithoutHeaders", "TestServiceMapsGrowOnDemand", "TestPreparedServiceReplacesNoProgram",
	"TestFirstServiceKeepsPublishes",
	// These test when a process loads programs, lets them rest and replaces those of another one, or which ports it
	// grants. TestBindHooksAreAdopted and TestServicesOutliveTheirProcess replace programs on this kernel.
	"TestProgramsAreLoadedOnce", "TestProgramsRest", "TestMapsOfAnotherSize", "TestEachProcessHasANewBindKey",
	"TestGrantsOfOtherProcesses",
	// These test what a process without files, cgroups or its turn says about the kernel. TestProbe asks this kernel.
	"TestProbeWithoutFiles", "TestLacksWithoutFiles", "TestLacksWhileOthersTest", "TestServicesWithoutCgroups",
	// These test the order of changes in divided transactions. TestSplitTransactions divides one on this kernel, and
	// TestServicesChange exchanges elements.
	"TestFrontendsAreExchanged", "TestFailedTransactionBehindAnother",
}

// TestPrograms loads the eBPF programs on the older kernel, whose verifier accepts less, and
// attaches them without TCX, which this kernel lacks.
func TestPrograms(t *testing.T) {
	services := slices.Concat(networking, []string{"nft_hash", "nft_numgen", "nft_reject_inet"})
	tools := []string{"awk", "cat", "grep", "ip", "nft", "sed", "sh", "ss", "sysctl"}
	o := forPrograms.run(t, services, tools, Task{"fairlead/internal/kernel",
		[]string{"-test.skip=^(" + strings.Join(skipped, "|") + ")$"}})
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}
