package repair

import "time"

// A reading of the rules that takes 1 ms uses up 10 ms. So a large ruleset that changes all the
// time takes a tenth of one CPU. What is used up may be ahead of the time by ahead: after a
// quiet time, the first changes are read at once. No reading waits for longer than longest after
// the one before, so a longer reading uses up no more than that.
const (
	share   = 10
	ahead   = 2 * time.Second
	longest = 5 * time.Second
)

// pace decides when the host's rules are read for networks with outbound auto: as soon as
// something has changed, but not all the time.
type pace struct {
	// wanted means that something has changed since the rules were read.
	wanted bool
	// used is the time that earlier readings have used up. due is when the rules must be read
	// although nothing has changed; zero means never.
	used, due time.Time
}

// wait returns how long to wait before the rules are read, and false if nothing is to be read.
func (p *pace) wait(now time.Time) (time.Duration, bool) {
	if !p.wanted && p.due.IsZero() {
		return 0, false
	}
	wait := p.used.Add(-ahead).Sub(now)
	if !p.wanted {
		wait = max(wait, p.due.Sub(now))
	}
	return max(wait, 0), true
}

// read records that the rules were read, how long that took, and when to read them again.
func (p *pace) read(now time.Time, took time.Duration, due time.Time) {
	if p.used.Before(now) {
		p.used = now
	}
	if soon := now.Add(together); !due.IsZero() && due.Before(soon) { // what is due may wait for ports
		due = soon
	}
	used := p.used.Add(share * took)
	if most := now.Add(ahead + longest); used.After(most) {
		used = most
	}
	*p = pace{used: used, due: due}
}
