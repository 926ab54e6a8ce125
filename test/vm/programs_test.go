package vm

import (
	"strings"
	"testing"
)

// runs selects the tests of package ebpf that run the programs on packets of each kind
// (BPF_PROG_TEST_RUN). All of them would take too long in an emulator, whose verifier is slow.
// These tests cover the programs at links, with and without services, and the fast path.
const runs = "^(TestLifeOfConnections|TestServed|TestSYNsOfOpenConnections|TestOneWayEndsPushNothingOut|TestFast)$"

// TestProgramRuns runs the eBPF programs on Debian's older kernel and on its newest, and on that of another
// architecture: their verifiers, helpers and compilers to machine code differ.
func TestProgramRuns(t *testing.T) {
	t.Parallel()
	for name, kernel := range map[string]Kernel{
		"6.1": debian(t), "6.12": backported(t), "6.1 for arm64": debianARM(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Machine{Kernel: kernel, Modules: networking, Tools: []string{"ip", "sh"}}
			said, err := m.Test(t.Context(), "fairlead/internal/kernel/ebpf", "-test.run="+runs)
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if n := strings.Count(said, "\n--- PASS: "); n != strings.Count(runs, "|")+1 {
				t.Errorf("%d tests ran, but %s names another number:\n%s", n, runs, said)
			}
		})
	}
}
