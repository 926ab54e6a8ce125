package vm

import (
	"strings"
	"testing"
)

// runs selects the tests of package ebpf that run the programs on packets of each kind
// (BPF_PROG_TEST_RUN). All of them would take too long in an emulator, whose verifier is slow.
// These tests cover the programs at links, with and without services, and the fast path.
const runs = "^(TestLifeOfConnections|TestServed|TestSYNsOfOpenConnections|TestOneWayEndsPushNothingOut|TestFast)$"

// TestProgramRuns runs the eBPF programs on Debian's older kernel. The verifiers, helpers and compilers to machine code
// of kernels and architectures differ.
func TestProgramRuns(t *testing.T) { runPrograms(t, forLinks) }

// TestProgramRunsOnNewerKernel runs them on Debian's newest kernel.
func TestProgramRunsOnNewerKernel(t *testing.T) { runPrograms(t, forNewer) }

// TestProgramRunsOnARM runs them on the older kernel for arm64.
func TestProgramRunsOnARM(t *testing.T) { runPrograms(t, onARM) }

func runPrograms(t *testing.T, m *shared) {
	t.Helper()
	o := m.run(t, networking, []string{"ip", "sh"},
		Task{"fairlead/internal/kernel/ebpf", []string{"-test.run=" + runs}})
	if o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
	if n := strings.Count(o.Said, "\n--- PASS: "); n != strings.Count(runs, "|")+1 {
		t.Errorf("%d tests ran, but %s names another number:\n%s", n, runs, o.Said)
	}
}
