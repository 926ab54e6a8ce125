package load

import (
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// spinBound is how long a spinning stream polls before it sleeps. It is longer than
// the round trips that spinning is meant for, and short enough that a stalled path
// does not keep a processor busy.
const spinBound = time.Millisecond

// stream is a connected descriptor and how to wait on it.
type stream struct {
	fd   int
	peer netip.AddrPort
	spin bool
	// over is nil if the peer must answer: silence is then an error. If it is
	// not nil, silence is an error only after over is set.
	over *atomic.Bool
	// patience limits the silence; with zero it ends at the first tick.
	patience time.Duration
}

// wait is the state of one wait for data.
type wait struct {
	since time.Time
	polls uint
}

// again decides what to do if no data came: nil means to try again, io.EOF that the
// run is over, ErrNoAnswer that the peer was silent for too long.
func (s *stream) again(w *wait) error {
	if w.since.IsZero() {
		w.since = time.Now()
		if !s.spin {
			w.since = w.since.Add(-tick) // the first read has slept for one tick
		}
	}
	if s.spin && !s.spent(w) {
		return nil
	}
	switch {
	case s.over != nil && !s.over.Load():
		w.since = time.Now()
		return nil
	case time.Since(w.since) < s.patience:
		return nil
	case s.over != nil:
		return io.EOF
	}
	return silent(s.peer)
}

// spent reports whether a spinning stream has polled for spinBound and then waited
// for a tick in the kernel without data. It reads the clock at every 64th poll.
func (s *stream) spent(w *wait) bool {
	w.polls++
	if w.polls%64 != 0 || time.Since(w.since) < spinBound {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(fds, int(tick.Milliseconds()))
	return n == 0
}

// read reads the next bytes, at least one; it returns io.EOF at the end.
func (s *stream) read(b []byte) (int, error) {
	var w wait
	for {
		n, errno := rawRead(s.fd, b)
		switch {
		case errno == 0 && n > 0:
			return n, nil
		case errno == 0:
			return 0, io.EOF
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			if err := s.again(&w); err != nil {
				return 0, err
			}
		default:
			return 0, failed("receive from", s.peer, errno)
		}
	}
}

// readFull fills b. It returns io.EOF only if the stream ends before the first byte.
func (s *stream) readFull(b []byte) error {
	for got := 0; got < len(b); {
		n, err := s.read(b[got:])
		if err == io.EOF && got > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		got += n
	}
	return nil
}

// write sends a part of b, at least one byte, and waits for at most patience.
func (s *stream) write(b []byte) (int, error) { return s.send(b, 0) }

func (s *stream) send(b []byte, flags int) (int, error) {
	for {
		n, errno := rawSend(s.fd, b, flags)
		switch {
		case errno == 0:
			return n, nil
		case errno == unix.EINTR:
		case errno == unix.EAGAIN && s.spin:
			if !s.writable() {
				return 0, silent(s.peer)
			}
		default:
			return 0, failed("send to", s.peer, errno)
		}
	}
}

func (s *stream) writable() bool {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(patience.Milliseconds()))
	return n > 0 || err == unix.EINTR
}

func (s *stream) writeFull(b []byte) error { return s.sendFull(b, 0) }

// writeLast sends all of b, its end together with the FIN. The caller must close the
// stream at once.
func (s *stream) writeLast(b []byte) error { return s.sendFull(b, unix.MSG_MORE) }

func (s *stream) sendFull(b []byte, flags int) error {
	for len(b) > 0 {
		n, err := s.send(b, flags)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
