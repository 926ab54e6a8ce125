package runner

import (
	"fmt"
	"strings"
	"time"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/result"
)

const (
	// maxOther is the share of the machine's CPU time that processes outside the
	// laboratory may use during a run.
	maxOther = 0.10
	// tries is the maximum number of attempts for a run that other load disturbs.
	// oneIn limits the share of a session's runs that may be repeated, so that the
	// laboratory does not wait for a machine that is never idle.
	tries = 3
	oneIn = 4
)

// busy returns why a run does not count although its path is correct; "" if it
// counts.
func (s *session) busy(run result.Run) string {
	l := run.Ledger
	if s.Shared || l == nil || l.Other <= maxOther*l.Wall*float64(l.CPUs) {
		return ""
	}
	return fmt.Sprintf("other processes used more than %.0f %% of the CPU time", 100*maxOther)
}

// otherLoad returns a text with the share of CPU time of other processes, the
// busiest of them, and the limit.
func otherLoad(g ledger.Gates) string {
	why := fmt.Sprintf("other processes used %.0f %% of the CPU time, more than %.0f %%", 100*g.OtherShare,
		100*maxOther)
	var top []string
	for _, c := range g.Others {
		top = append(top, fmt.Sprintf("%s (PID %d)", c.Command, c.PID))
	}
	if len(top) == 0 {
		return why
	}
	return why + "; most by " + strings.Join(top, ", ")
}

// watch is how long Busy observes the machine.
const watch = 300 * time.Millisecond

// Busy observes the machine before a session, and returns why its runs would not
// count; "" if they would.
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

// again reports whether a disturbed run is to be repeated.
func (s *session) again(run result.Run, try int) bool {
	if !run.Disturbed || try >= tries || s.repeated >= max(1, s.planned/oneIn) {
		return false
	}
	s.repeated++
	return true
}
