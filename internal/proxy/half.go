package proxy

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// half is one direction of a connection.
type half struct {
	pipe     pipe
	buffered int // bytes in the pipe
	// rest was read through the buffer, and the other side has not accepted it yet.
	// It goes before what is in the pipe.
	rest []byte
	// readable and writable are true from an edge until EAGAIN.
	readable, writable bool
	// ending means that the source may have closed already: no further edge
	// will come, so it is read until EOF or an error.
	ending bool
	// eof: the source sent FIN. done: the FIN was sent to the other side.
	eof, done bool
	piped     bool
	streamed  int   // bytes read into the pipe since the direction has it
	full      uint8 // transfers in a row that filled the buffer
	small     uint8 // transfers in a row that were too small for a pipe
}

type moveResult int

const (
	moveIdle   moveResult = iota // nothing more to do until an edge
	moveMore                     // the turn is over, but there is more to move
	moveBroken                   // one of the connections has failed
)

const (
	// clientTurn limits what one direction moves per turn, in bytes. Other connections
	// of the worker wait for that long, about 20 µs. Workers of bulk streams have no
	// others: they use streamTurn, which takes half of the CPU time per byte.
	clientTurn, streamTurn = 64 << 10, 1 << 20
	// bulkAfter is how many full buffers in a row give a direction a pipe.
	bulkAfter = 2
	// After quietAfter spliced transfers below quietBytes in a row, the pipe is
	// released.
	quietAfter, quietBytes = 32, 4 << 10
)

// move forwards from c.fd[d] to the other side.
func (c *conn) move(w *worker, d direction) moveResult {
	p := &c.half[d]
	for moved := 0; moved < w.turn; {
		if len(p.rest) > 0 || p.buffered > 0 {
			if !p.writable {
				return moveIdle
			}
			n, e := p.drain(c.fd[1-d])
			w.moved(c.group, d, n)
			moved += n
			if e == unix.EAGAIN {
				p.writable = false
				return moveIdle
			}
			if e != 0 {
				return moveBroken
			}
			continue
		}
		if p.eof {
			c.finish(d)
			return moveIdle
		}
		if !p.readable || !p.writable {
			return moveIdle
		}
		n, e := c.take(w, d)
		moved += n
		if e == unix.EAGAIN {
			p.readable = false
			return moveIdle
		}
		if e != 0 {
			return moveBroken
		}
	}
	return moveMore
}

// finish sends the end of the stream to the other side. If the other direction
// has ended too, closing the socket does that.
func (c *conn) finish(d direction) {
	if c.half[d].done {
		return
	}
	c.half[d].done = true
	if !c.half[1-d].done {
		shutdownWrite(c.fd[1-d])
	}
}

// take reads once from the source: into the pipe, or through the buffer to
// the other side. It returns the bytes that reached the other side, and why
// reading stopped.
func (c *conn) take(w *worker, d direction) (int, unix.Errno) {
	p := &c.half[d]
	if p.piped && p.small >= quietAfter {
		p.release(w)
	}
	if p.piped {
		return 0, p.fill(c.fd[d], w.turn)
	}
	return c.carry(w, d)
}

// fill splices up to n bytes from the source into the empty pipe.
func (p *half) fill(from, n int) unix.Errno {
	n, e := splice(from, p.pipe.write, n)
	if e != 0 {
		return e
	}
	p.streamed += n
	p.buffered, p.eof = n, n == 0
	if p.small++; n >= quietBytes {
		p.small = 0
	}
	return 0
}

// drain sends the rest to the other side, or else splices from the pipe.
func (p *half) drain(to int) (int, unix.Errno) {
	if len(p.rest) > 0 {
		n, e := send(to, p.rest)
		if e != 0 {
			return 0, e
		}
		p.rest = p.rest[n:]
		return n, 0
	}
	n, e := splice(p.pipe.read, to, p.buffered)
	if e != 0 {
		return 0, e
	}
	p.buffered -= n
	return n, 0
}

// carry copies through the buffer. It keeps bytes that the other side does not
// accept.
func (c *conn) carry(w *worker, d direction) (int, unix.Errno) {
	p := &c.half[d]
	n, e := receive(c.fd[d], w.buffer)
	if e != 0 {
		return 0, e
	}
	if n == 0 {
		p.eof = true
		return 0, 0
	}
	if p.full++; n < len(w.buffer) {
		p.full = 0
		p.readable = p.ending
	}
	sent, e := send(c.fd[1-d], w.buffer[:n])
	if e == unix.EAGAIN {
		sent, e = 0, 0
	}
	if e != 0 {
		return 0, e
	}
	w.moved(c.group, d, sent)
	if sent < n {
		p.rest, p.writable = bytes.Clone(w.buffer[sent:n]), false
	}
	if p.full >= bulkAfter {
		p.full = 0
		p.widen(w)
	}
	return sent, 0
}

// widen gets a pipe for the direction. If there is none, the direction continues with
// the buffer.
func (p *half) widen(w *worker) {
	if got, ok := w.pipes.get(); ok {
		p.pipe, p.piped, p.small = got, true, 0
		w.counts.bulk.Add(1)
	}
}

// release gives the pipe back.
func (p *half) release(w *worker) {
	if p.piped {
		w.pipes.put(p.pipe, p.buffered)
		w.counts.bulk.Add(-1)
		p.piped, p.streamed = false, 0
	}
}
