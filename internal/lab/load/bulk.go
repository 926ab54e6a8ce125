package load

import (
	"io"

	"golang.org/x/sys/unix"
)

// pattern returns a buffer whose pages are allocated. Untouched memory is the one
// shared zero page, which is unrealistically cheap to read.
func pattern(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte('0' + i%10)
	}
	return b
}

// bulkSend writes to s until the run is quiet, then closes its half of the stream.
func (j *job) bulkSend(t *thread, s *stream, i int) error {
	buf := pattern(j.spec.buffer())
	var p *pace
	if !j.spec.background(i) {
		p = j.newPace(t, j.spec.Rate/8/float64(j.spec.Size), i%j.spec.Streams, j.spec.Streams, 0)
	}
	defer unix.Shutdown(s.fd, unix.SHUT_WR)
	for !j.quiet.Load() {
		if p == nil {
			n, err := s.write(buf)
			t.sentBytes.Add(uint64(n))
			if err != nil {
				return err
			}
			continue
		}
		if err := j.bulkPaced(t, s, p, buf); err != nil {
			return err
		}
	}
	return nil
}

// bulkPaced sends one whole buffer at its intended time: a partial write would
// lower the offered load.
func (j *job) bulkPaced(t *thread, s *stream, p *pace, buf []byte) error {
	if _, ok := p.wait(j); !ok {
		return nil
	}
	for len(buf) > 0 && !j.quiet.Load() {
		n, err := s.write(buf)
		t.sentBytes.Add(uint64(n))
		if err != nil {
			return err
		}
		buf = buf[n:]
	}
	return nil
}

// bulkReceive reads from s to its end, a full buffer at a time. If an idle
// receiver is woken for every segment, its sender pays for each wake-up, which on
// a virtual machine is the costliest part of sending.
func (j *job) bulkReceive(t *thread, s *stream) error {
	if err := setInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, j.spec.buffer()); err != nil {
		return err
	}
	if j.spec.Rate > 0 {
		s.over = &j.done // at a low rate, long silence is normal
	}
	buf := pattern(j.spec.buffer())
	for {
		n, err := s.read(buf)
		t.receivedBytes.Add(uint64(n))
		if err == io.EOF {
			return j.ended(s)
		}
		if err != nil {
			return err
		}
	}
}

// ended reports an error if a stream ended before this side's window has closed.
func (j *job) ended(s *stream) error {
	if j.phase.Load() == phaseAfter {
		return nil
	}
	return closed(s.peer)
}
