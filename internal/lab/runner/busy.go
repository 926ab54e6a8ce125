package runner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/result"
)

const (
	// maxOther is the share of the machine's CPU time that processes outside the
	// laboratory may use during a run.
	maxOther = 0.10
	// maxSteal is the share of a machine's CPU time that its hypervisor may use during a run.
	maxSteal = 0.05
	// tick is the resolution of /proc/stat, in seconds.
	tick = 0.01
	// tries is the maximum number of attempts for a run that other load disturbs.
	// oneIn limits the share of a session's runs that may be repeated, so that the
	// laboratory does not wait for a machine that is never idle.
	tries = 3
	oneIn = 4
)

// busy returns why a run does not count although its path is correct: others have used the CPUs. It returns nothing if
// the session shares them.
func (s *session) busy(run result.Run) (why []string) {
	l := run.Ledger
	if s.Shared || l == nil {
		return nil
	}
	if l.Other > maxOther*l.Wall*float64(l.CPUs) {
		why = append(why, fmt.Sprintf("other processes used more than %.0f %% of the CPU time", 100*maxOther))
	}
	machines := slices.Collect(maps.Values(run.Ledgers))
	if len(machines) == 0 {
		machines = []result.Ledger{*l}
	}
	most := 0.0
	for _, l := range machines {
		if wall := l.Wall * float64(l.CPUs); l.Steal > maxSteal*wall+tick { // one tick may have begun before the window
			most = max(most, l.Steal/wall)
		}
	}
	if most > 0 {
		why = append(why, fmt.Sprintf("the hypervisor took %.1f %% of the CPU, more than %.0f %%", 100*most, 100*maxSteal))
	}
	return why
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
