package runner

import (
	"fmt"
	"strings"
	"time"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/result"
)

const (
	// maxOther is the share of the machine's CPU time that processes which do
	// not belong to the laboratory may use during a run.
	maxOther = 0.10
	// tries is how often a run is made at most that the machine disturbs, and
	// oneIn the share of a session's runs that may be made again: a machine that
	// is never idle is not waited for.
	tries = 3
	oneIn = 4
)

// busy says why a run does not count though nothing is wrong with its path; empty
// means that it does.
func (s *session) busy(run result.Run) string {
	l := run.Ledger
	if s.Shared || l == nil || l.Other <= maxOther*l.Wall*float64(l.CPUs) {
		return ""
	}
	return fmt.Sprintf("other processes used more than %.0f %% of the CPU time", 100*maxOther)
}

// otherLoad says what share of the machine other processes used, which of them
// most, and how much is too much.
func otherLoad(g ledger.Gates) string {
	why := fmt.Sprintf("other processes used %.0f %% of the CPU time, more than %.0f %%", 100*g.OtherShare, 100*maxOther)
	var top []string
	for _, c := range g.Others {
		top = append(top, fmt.Sprintf("%s (PID %d)", c.Command, c.PID))
	}
	if len(top) == 0 {
		return why
	}
	return why + "; most by " + strings.Join(top, ", ")
}

// watch is how long Busy watches the machine.
const watch = 300 * time.Millisecond

// Busy watches the machine before a session and says why its runs would not
// count; empty means that they would.
func Busy() (string, error) {
	w, err := ledger.Begin(ledger.Parties{})
	if err != nil {
		return "", err
	}
	time.Sleep(watch)
	_, gates, err := w.End()
	if err != nil || gates.OtherShare <= maxOther {
		return "", err
	}
	return otherLoad(gates), nil
}

// again reports whether a run that was disturbed is to be made once more.
func (s *session) again(run result.Run, try int) bool {
	if !run.Disturbed || try >= tries || s.repeated >= max(1, s.planned/oneIn) {
		return false
	}
	s.repeated++
	return true
}
