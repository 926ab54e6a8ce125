package report

import (
	"strings"
	"testing"

	"fairlead/internal/lab/result"
)

// TestOtherLoadIsReported: terminal and page show its share of the CPU time and
// the commands. For an idle machine they show nothing.
func TestOtherLoadIsReported(t *testing.T) {
	quiet := synthQuick.report()
	if text := string(tableOf(t, quiet, Options{})); strings.Contains(text, "other processes used") ||
		strings.Contains(text, "the hypervisor") {
		t.Errorf("on an idle machine:\n%s", text)
	}
	busy := synthQuick.report()
	for i := range busy.Runs {
		busy.Runs[i].Ledger.Other, busy.Runs[i].Ledger.Steal = 0.96, 0.68 // seconds of 2 CPUs in one second
		busy.Runs[i].Others = []result.Consumer{{PID: 7, Command: "stress", Seconds: 0.6},
			{PID: 8, Command: "cc", Seconds: 0.36}}
	}
	busy.Runs[0].Disturbed, busy.Runs[0].Invalid = true, []string{"other processes used more than 10 % of the CPU time"}
	busy.Laboratories, busy.Shared = []int{4711}, true
	for _, text := range []string{string(tableOf(t, busy, Options{})), htmlOf(t, busy)} {
		for _, want := range []string{"other processes used 48 % of the CPU time in the median run, most by stress",
			"the hypervisor took 34 % of the CPU time in the median run", "no run was discarded because of it (--shared)",
			"another laboratory (PID 4711)", "1 run was disturbed"} {
			if !strings.Contains(text, want) {
				t.Errorf("missing %q in\n%.2000s", want, text)
			}
		}
	}
}
