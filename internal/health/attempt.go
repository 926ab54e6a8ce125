package health

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// Theory of operation (ADR 35). A check that is not answered soon does not hold
// up the next: that begins beside it (settings.beside), and each has its whole
// timeout. The first answer is enough, and makes the others moot; where none
// comes, so many as make the server down end soon after each other. So a lost
// packet fails no check, and a server that is silent is out after little more
// than one timeout, and not after as many as there are checks.
//
// The host may be so busy that this process does not run for a while. What the
// server has answered meanwhile is looked at before it is judged
// (bounded.Read, socket.wait), and a check that had too little of its time to
// itself is void.

// ask has a server checked that is due. One that is late is not checked twice
// for that.
func (m *Monitor) ask(s *server, now time.Time) {
	if n := len(s.checks); n > 0 {
		last := s.began
		if s.checks[n-1].began.IsZero() {
			last = now
		}
		if s.next = s.besideAt(last); s.next.IsZero() || s.next.After(now) {
			return
		}
	}
	c := &attempt{of: s}
	s.checks = append(s.checks, c)
	m.waiting.add(c)
	s.next = s.besideAt(now)
}

// besideAt returns when to check the server once more if what was begun last has
// found nothing by then; zero for never.
func (s *server) besideAt(last time.Time) time.Time {
	st := s.of.settings
	if st.beside == 0 || len(s.checks) >= max(2, st.fall) || s.rec.Known && !s.rec.Up {
		return time.Time{}
	}
	return last.Add(st.beside)
}

// end makes all checks of the server moot.
func (s *server) end() {
	for _, c := range s.checks {
		c.moot = true
		if c.cancel != nil {
			c.cancel()
		}
	}
	s.checks = nil
}

// check makes a check, and then others for as long as some wait.
func (m *Monitor) check(ctx context.Context, c *attempt) {
	for c != nil {
		m.mu.Lock()
		checker, target, timeout := c.of.of.checker, c.of.target, c.of.of.settings.timeout
		c.began, c.delayed = time.Now(), m.delayed
		limited, cancel := context.WithDeadline(ctx, c.began.Add(timeout))
		c.cancel, c.of.began = cancel, c.began
		m.mu.Unlock()
		res := Result{Void: true, Detail: "no longer checked"}
		if checker != nil {
			res = checker.Check(limited, target)
		}
		cancel()
		res.Latency = time.Since(c.began)
		c = m.finish(ctx, c, res, timeout)
	}
}

// finish takes the result of a check that had so much time, and returns the next
// check to make, if one waits.
func (m *Monitor) finish(ctx context.Context, c *attempt, res Result, timeout time.Duration) *attempt {
	s, now := c.of, c.began.Add(res.Latency)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting.done(c)
	if ctx.Err() != nil || m.stopped {
		return nil
	}
	if c.moot {
		return m.waiting.take()
	}
	if starved := max(m.delayed-c.delayed, res.Latency-timeout); res.Failure == Timeout && starved >= timeout/4 {
		res.Void, res.Detail = true, oneLine("this host was too busy to check: "+res.Detail)
	}
	s.checks = slices.DeleteFunc(s.checks, func(o *attempt) bool { return o == c })
	m.counters.count(res)
	up := s.rec.Up
	m.note(s, s.rec.State(), s.rec.checked(s.of.settings, res, now), now)
	s.last, s.lastAt = res, now
	s.counts.count(res)
	if res.OK || s.rec.Up != up {
		s.end()
	}
	s.next = s.after(now)
	m.plan(s, now)
	return m.waiting.take()
}

// after returns when to check the server next, after a check that has ended now.
func (s *server) after(now time.Time) time.Time {
	next := time.Time{}
	switch n := len(s.checks); {
	case s.of.checker == nil:
	case n == 0:
		next = s.began.Add(s.rec.wait(s.of.settings, rand.Float64()))
	case !s.checks[n-1].began.IsZero():
		next = s.besideAt(s.began)
	}
	if !next.IsZero() && next.Before(now) {
		return now
	}
	return next
}

// punctual is how late the loop may be on a host that is not too busy.
const punctual = 20 * time.Millisecond

// overslept notes that the loop was later than it meant to be: this process did
// not run, though there was something to do.
func (m *Monitor) overslept(by time.Duration) {
	if by < punctual {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delayed += by
}
