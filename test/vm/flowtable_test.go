package vm

import (
	"slices"
	"strings"
	"testing"
)

// runFlowtable runs tests of flowtables.
func runFlowtable(t *testing.T, m *shared, pkg, tests string) Outcome {
	t.Helper()
	return m.run(t, slices.Concat(networking, []string{"nf_flow_table_inet", "nft_flow_offload"}),
		[]string{"bridge", "cat", "grep", "head", "ip", "ls", "mkdir", "nft", "sed", "sh", "sleep", "sort", "ss",
			"sysctl", "tc"}, Task{pkg, []string{"-test.run=" + tests}})
}

// TestFlowtable runs the daemon's test of flowtables, which the host's kernel may lack, on the older kernel.
func TestFlowtable(t *testing.T) { runDaemonsFlowtable(t, forLinks) }

// TestFlowtableOnNewerKernel does the same on the newer kernel.
func TestFlowtableOnNewerKernel(t *testing.T) { runDaemonsFlowtable(t, forNewer) }

func runDaemonsFlowtable(t *testing.T, m *shared) {
	t.Helper()
	o := runFlowtable(t, m, "fairlead/internal/daemon", "^TestFlowtable$")
	if o.Err != nil || strings.Count(o.Said, "    --- PASS: TestFlowtable/") != 2 {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}

// TestFlowtableTable runs the tests of the flowtable's table on the older kernel.
func TestFlowtableTable(t *testing.T) {
	o := runFlowtable(t, forLinks, "fairlead/internal/kernel/nft", "^(TestWithoutFlows|TestManyDevices)$")
	if o.Err != nil || strings.Contains(o.Said, "no_flowtable") {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}

// TestFlowtableAttacks executes the attacks of the table of threats on what the host forwards
// from and to networks with a flowtable.
func TestFlowtableAttacks(t *testing.T) {
	o := runFlowtable(t, forNewer, "fairlead/test/attack", "^TestAttacksWithFlowtable$")
	if o.Err != nil || !strings.Contains(o.Said, " cells tested") {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}
