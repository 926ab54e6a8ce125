package load

import (
	"errors"
	"io"
)

// streak is the number of consecutive failed transactions after which the path
// counts as dead.
const streak = 10

// exchange does one transaction and returns the time at which it ended.
type exchange func() (done int64, err error)

// transact repeats an exchange until the run is quiet or the spec's count is
// reached, one at a time, and records each that ends within the window. Exchanges
// that fail count as errors; with tolerant set only a streak of them ends the
// stream.
func (j *job) transact(t *thread, i int, do exchange, tolerant bool) error {
	p := j.newPace(t, j.spec.Rate, i, j.spec.Streams, spinAhead)
	bad := 0
	for !j.quiet.Load() {
		intended, sent, ok := j.turn(p)
		if !ok {
			return nil
		}
		done, err := do()
		if err == nil {
			bad = 0
			j.record(t, intended, sent, done)
			if t.latency.TotalCount() == int64(j.spec.Count) && j.spec.Count > 0 {
				return nil
			}
			continue
		}
		bad++
		t.errors.Add(1)
		if j.phase.Load() == phaseWindow {
			t.failed++
		}
		if !tolerant || bad == streak {
			return err
		}
	}
	return nil
}

// turn waits for the next transaction's intended time. Without a schedule it returns
// at once.
func (j *job) turn(p *pace) (intended, sent int64, ok bool) {
	if p == nil {
		now := j.clock.now()
		return now, now, true
	}
	intended, ok = p.wait(j)
	return intended, j.clock.now(), ok
}

func (j *job) record(t *thread, intended, sent, done int64) {
	t.transactions.Add(1)
	if t.latency == nil || j.phase.Load() != phaseWindow {
		return
	}
	note(t.latency, done-intended)
	if t.service != nil {
		note(t.service, done-sent)
	}
}

// rrClient does transactions over one TCP stream, one after another.
func (j *job) rrClient(t *thread, s *stream, i int) error {
	out, in := pattern(j.spec.Size), make([]byte, j.spec.Size)
	return j.transact(t, i, func() (int64, error) {
		if err := s.writeFull(out); err != nil {
			return 0, err
		}
		t.sentBytes.Add(uint64(len(out)))
		if err := s.readFull(in); err != nil {
			return 0, unexpected(s, err)
		}
		t.receivedBytes.Add(uint64(len(in)))
		return j.clock.now(), nil
	}, false)
}

// unexpected returns ErrClosed for the end of a stream that had not yet answered.
func unexpected(s *stream, err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		return closed(s.peer)
	}
	return err
}

// rrServer answers every request with the same number of bytes, until the client
// ends.
func (j *job) rrServer(t *thread, s *stream) error {
	buf := make([]byte, j.spec.Size)
	for {
		if err := s.readFull(buf); err != nil {
			return j.hungUp(err)
		}
		t.receivedBytes.Add(uint64(len(buf)))
		if err := s.writeFull(buf); err != nil {
			return err
		}
		t.sentBytes.Add(uint64(len(buf)))
		t.transactions.Add(1)
	}
}

// hungUp returns the error of a server's stream. The end of the client's half is not
// an error: if it is caused by a failure, the client reports the failure.
func (j *job) hungUp(err error) error {
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// lossAfter is how long a UDP answer may take before it counts as lost.
const lossAfter = patience / streak
