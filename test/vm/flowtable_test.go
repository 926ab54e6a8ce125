package vm

import (
	"slices"
	"strings"
	"testing"
)

// flowtables is a machine with the kernel's modules and the tools for tests of flowtables.
func flowtables(kernel Kernel) Machine {
	return Machine{Kernel: kernel,
		Modules: slices.Concat(networking, []string{"nf_flow_table_inet", "nft_flow_offload"}),
		Tools: []string{"bridge", "cat", "grep", "head", "ip", "ls", "mkdir", "nft", "sed", "sh", "sleep", "sort", "ss",
			"sysctl", "tc"}}
}

// TestFlowtable runs the daemon's test of flowtables, which the host's kernel may lack.
func TestFlowtable(t *testing.T) {
	t.Parallel()
	for name, kernel := range map[string]Kernel{"6.1": debian(t), "6.12": backported(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, err := flowtables(kernel).Test(t.Context(), "fairlead/internal/daemon", "-test.run=^TestFlowtable$")
			if err != nil || strings.Count(said, "    --- PASS: TestFlowtable/") != 2 {
				t.Fatalf("%v\n%s", err, said)
			}
		})
	}
}

// TestFlowtableTable runs the tests of the flowtable's table.
func TestFlowtableTable(t *testing.T) {
	t.Parallel()
	said, err := flowtables(debian(t)).Test(t.Context(), "fairlead/internal/kernel/nft",
		"-test.run=^(TestWithoutFlows|TestManyDevices)$")
	if err != nil || strings.Contains(said, "no_flowtable") {
		t.Fatalf("%v\n%s", err, said)
	}
}

// TestFlowtableAttacks executes the attacks of the table of threats on what the host forwards
// from and to networks with a flowtable.
func TestFlowtableAttacks(t *testing.T) {
	t.Parallel()
	said, err := flowtables(backported(t)).Test(t.Context(), "fairlead/test/attack",
		"-test.run=^TestAttacksWithFlowtable$")
	if err != nil || !strings.Contains(said, " cells tested") {
		t.Fatalf("%v\n%s", err, said)
	}
}
