package report

import (
	"fmt"
	"os"
	"time"

	"fairlead/internal/lab/result"

	"golang.org/x/term"
)

// Progress shows on one line of a terminal how far a session is. If the file is
// not a terminal, it writes nothing.
type Progress struct {
	write   func(string)
	columns func() int
	now     func() time.Time
	started time.Time
	total   int
	done    int
}

// NewProgress shows the progress of total runs on f, which should be the standard
// error.
func NewProgress(f *os.File, total int) *Progress {
	p := &Progress{write: func(string) {}, columns: func() int { return 0 }, now: time.Now, started: time.Now(),
		total: total}
	fd := int(f.Fd())
	if term.IsTerminal(fd) {
		p.write = func(s string) { fmt.Fprint(f, s) }
		p.columns = func() int {
			w, _, err := term.GetSize(fd)
			if err != nil {
				return 80
			}
			return w
		}
	}
	return p
}

// Start shows which case is measured now, in which round; session is 0 if there is only
// one.
func (p *Progress) Start(session, sessions, round, rounds int, c result.Case) {
	line := ""
	if session > 0 {
		line = fmt.Sprintf("session %d/%d  ", session, sessions)
	}
	line += fmt.Sprintf("round %d/%d  %s  %s, %s", round, rounds, c.Path, workloadTitle(c.Workload)+byTool(c.Tool),
		clientTitle(c.Client))
	if left, known := p.left(); known {
		line += "  about " + left.String() + " left"
	}
	// Leave one column free: a full line would wrap on some terminals.
	if room := p.columns() - 1; width(line) > max(0, room) {
		line = string([]rune(line)[:max(0, room)])
	}
	p.write("\r\x1b[K" + line)
}

// Done counts one finished run.
func (p *Progress) Done() { p.done++ }

// Clear removes the line; call it before you write anything else.
func (p *Progress) Clear() { p.write("\r\x1b[K") }

// left estimates the remaining time from the runs so far.
func (p *Progress) left() (left time.Duration, known bool) {
	if p.done == 0 || p.done > p.total {
		return 0, false
	}
	each := p.now().Sub(p.started) / time.Duration(p.done)
	return (each * time.Duration(p.total-p.done)).Round(time.Second), true
}
