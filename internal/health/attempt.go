package health

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// Theory of operation (ADR 35). A check without an answer does not delay the next
// one: that begins in parallel after settings.beside, and each has its whole
// timeout. The first answer is enough, and makes the other checks moot. If no
// answer comes, as many checks as take the server down end soon after each other.
// So a lost packet does not fail a check, and a silent server is down after little
// more than one timeout, and not after one timeout for each check.
//
// The host may be so busy that this process does not run for a while. Answers that
// arrived in that time are read before the check fails (bounded.Read,
// socket.wait). If the process was delayed for a quarter of the timeout or more, a
// timed-out check is void.

// ask queues a check of a server that is due. It does not queue a second one if
// the first is only delayed.
func (m *Monitor) ask(s *server, now time.Time) {
	if n := len(s.checks); n > 0 {
		last := s.began
		if s.checks[n-1].began.IsZero() {
			last = now
		}
		if s.next = s.besideAt(last); s.next.IsZero() || s.next.After(now) {
			return
		}
		m.suspect(s, now)
	}
	c := &attempt{of: s}
	s.checks = append(s.checks, c)
	m.waiting.add(c)
	s.next = s.besideAt(now)
}

// besideAt returns when to begin a parallel check if the last one, which began at
// last, has no result by then; zero for never.
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

// check makes a check, and then others as long as some wait.
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

// finish applies the result of a check with the given timeout, and returns the next
// waiting check, nil if there is none.
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
	s.host.answers(res, now)
	s.counts.count(res)
	if res.OK || s.rec.Up != up {
		s.end()
	}
	s.next = s.after(now)
	m.plan(s, now)
	return m.waiting.take()
}

// after returns when to check the server next, after a check that ended now.
func (s *server) after(now time.Time) time.Time {
	next := time.Time{}
	switch n := len(s.checks); {
	case s.of.checker == nil:
	case n == 0:
		next = s.began.Add(s.spread(s.rec.wait(s.of.settings, rand.Float64())))
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

// overslept records that the loop ran later than planned: this process did not get
// CPU time.
func (m *Monitor) overslept(by time.Duration) {
	if by < punctual {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delayed += by
}
