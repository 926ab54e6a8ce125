package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// spinAhead is how long before a transaction's intended time its thread wakes up to
// spin. It is longer than the usual delay of a timer with a slack of 1 ns.
const spinAhead = 30 * time.Microsecond

// pace is one stream's fixed schedule: start, start+step, start+2·step … Each time
// is computed from start, so delays do not accumulate.
type pace struct {
	clock clock
	next  int64
	step  float64
	start int64
	n     int64
	// ahead is how long to spin before each time; 0 only sleeps.
	ahead int64
	t     *thread
}

// newPace spreads perSecond arrivals over all streams. The i-th of n streams starts
// i/n of a step later, so that the streams do not send at the same time. It returns
// nil if the run has no fixed rate.
func (j *job) newPace(t *thread, perSecond float64, i, n int, ahead time.Duration) *pace {
	if j.spec.Rate == 0 {
		return nil
	}
	// Linux rounds sleeps up by the thread's slack, 50 µs by default.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	step := 1e9 * float64(n) / perSecond
	start := j.clock.now() + int64(step*float64(i)/float64(n))
	return &pace{clock: j.clock, start: start, next: start, step: step, ahead: int64(ahead), t: t}
}

// wait waits for the next arrival and returns its intended time. It returns false
// within a tick if the run becomes quiet.
func (p *pace) wait(j *job) (intended int64, ok bool) {
	intended = p.next
	free := p.clock.now()
	for now := free; now < intended; now = p.clock.now() {
		if j.quiet.Load() {
			return 0, false
		}
		p.sleep(now, intended)
	}
	p.take()
	if j.phase.Load() == phaseWindow {
		note(p.t.lateness, p.clock.now()-max(intended, free))
	}
	return intended, true
}

// take returns the next arrival's intended time, and goes on to the one after it.
func (p *pace) take() (intended int64) {
	intended = p.next
	p.n++
	p.next = p.start + int64(p.step*float64(p.n))
	return intended
}

// sleep waits until shortly before the intended time, and not at all within
// that distance: the caller's loop then spins.
func (p *pace) sleep(now, intended int64) {
	until := intended - p.ahead
	if now >= until {
		return
	}
	rawSleep(min(until, now+int64(tick))) // the caller reads the clock again
}
