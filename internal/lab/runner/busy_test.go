package runner

import (
	"strings"
	"testing"

	"fairlead/internal/lab/result"
)

// TestBusyMachines checks which use of the CPUs by others makes a run invalid, on one machine and on each of two, and
// that none does in a session that shares the CPUs.
func TestBusyMachines(t *testing.T) {
	ledger := func(other, steal float64) *result.Ledger {
		return &result.Ledger{Wall: 1, CPUs: 2, Other: other, Steal: steal}
	}
	quiet := *ledger(0, 0)
	for _, c := range []struct {
		run  result.Run
		want string
	}{
		{result.Run{}, ""},
		{result.Run{Ledger: ledger(0.2, 0.11)}, ""}, // one tick may have begun before the window
		{result.Run{Ledger: ledger(0.21, 0)}, "other processes used more than 10 % of the CPU time"},
		{result.Run{Ledger: ledger(0, 0.68)}, "the hypervisor took 34.0 % of the CPU, more than 5 %"},
		{result.Run{Ledger: ledger(0.5, 0.2)}, "other processes used more than 10 % of the CPU time; " +
			"the hypervisor took 10.0 % of the CPU, more than 5 %"},
		{result.Run{Ledger: &result.Ledger{Wall: 1, CPUs: 4, Steal: 0.16}, Ledgers: map[string]result.Ledger{
			"server": quiet, "client": *ledger(0, 0.16)}}, "the hypervisor took 8.0 % of the CPU, more than 5 %"},
	} {
		if got := strings.Join((&session{}).busy(c.run), "; "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.run.Ledger, got, c.want)
		}
		if got := (&session{Options: Options{Shared: true}}).busy(c.run); got != nil {
			t.Errorf("%+v: %q in a session that shares the CPUs", c.run.Ledger, got)
		}
	}
}
