package report

import (
	"strings"
	"testing"

	"fairlead/internal/lab/result"
)

// TestOtherLoadIsSaid with its share of the machine and the commands, on the
// terminal and on the page; and nothing is said of a quiet machine.
func TestOtherLoadIsSaid(t *testing.T) {
	quiet := synthQuick.report()
	if text := string(tableOf(t, quiet, Options{})); strings.Contains(text, "other processes used") {
		t.Errorf("of a quiet machine:\n%s", text)
	}
	busy := synthQuick.report()
	for i := range busy.Runs {
		busy.Runs[i].Ledger.Other = 0.96 // of 2 CPUs for a second
		busy.Runs[i].Others = []result.Consumer{{PID: 7, Command: "stress", Seconds: 0.6}, {PID: 8, Command: "cc", Seconds: 0.36}}
	}
	busy.Runs[0].Disturbed, busy.Runs[0].Invalid = true, []string{"other processes used more than 10 % of the CPU time"}
	busy.Laboratories = []int{4711}
	for _, text := range []string{string(tableOf(t, busy, Options{})), htmlOf(t, busy)} {
		for _, want := range []string{"other processes used 48 % of the CPU time in the median run, most by stress", "another laboratory (PID 4711)", "1 run was disturbed"} {
			if !strings.Contains(text, want) {
				t.Errorf("there is no %q in\n%.2000s", want, text)
			}
		}
	}
}
