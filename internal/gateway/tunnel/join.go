// Package tunnel moves bytes between two connections, as TCP routers and upgrades of HTTP need
// it.
//
// Theory of operation. Two goroutines move the bytes, one per direction. A direction between
// TCP connections waits without a buffer and without a pipe, so idle connections cost no more
// than their descriptors. It copies small amounts through a pooled buffer, and the kernel splices large ones. The end of one direction is passed on, and the other continues.
//
// Tunnels that carry messages share goroutines (loop.go) as long as their messages are short and accepted
// at once: a message then costs two system calls, and no switch to a goroutine of its own.
package tunnel

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/nonblock"
)

const (
	// bufferSize is that of the pooled buffers, smallSize that of the buffer in which a
	// silent TLS connection waits.
	bufferSize, smallSize = 32 << 10, 4 << 10
	// bulkAfter is how many full buffers in a row make a direction splice.
	bulkAfter = 2
	// spliceStep is how much is spliced at once.
	spliceStep = 1 << 20
	// quiet is how long a splicing direction keeps its pipe while nothing arrives: the
	// kernel limits the memory of an unprivileged user's pipes.
	quiet = time.Second
)

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// errSilent ends a direction that was silent for too long after the other one has ended.
var errSilent = errors.New("the termination delay has passed")

// Join moves bytes between two connections until both directions have ended, and closes them.
// When one direction has ended, the other may be silent for the delay at most; a negative
// delay means no limit. If a connection fails, both are reset, so that neither side takes the
// failure for the end.
func Join(a, b net.Conn, delay time.Duration) {
	join(newDirection(b, a, delay), newDirection(a, b, delay))
}

func join(there, back *direction) {
	var both goroutine.Group
	both.Go("move the bytes of a tunnel", func() { there.run(back) })
	back.run(there)
	both.Wait()
	_ = there.from.Close() // both have ended
	_ = there.to.Close()
}

// direction moves bytes one way.
type direction struct {
	to, from net.Conn
	// sink and source are nil if TLS, not the kernel, has the bytes.
	sink, source *net.TCPConn
	in, out      syscall.RawConn
	delay        time.Duration
	small        []byte
	// full counts the full buffers in a row.
	full  int
	moved atomic.Int64

	// forward and send are passed to raw.Read and to the sink's raw.Write, so that they are allocated
	// once. Rest is what was received and not sent; buffer, if not nil, is its memory.
	forward, send func(fd uintptr) bool
	buffer        *[bufferSize]byte
	rest          []byte
	failed        error

	// mu protects the deadline of from, and what it is for.
	mu sync.Mutex
	// last is set when the other direction has ended. Seen is what was moved at the last
	// inspection.
	last bool
	seen int64
}

func newDirection(to, from net.Conn, delay time.Duration) *direction {
	d := &direction{to: to, from: from, sink: plain(to), source: plain(from), delay: delay}
	d.forward, d.send = d.tryForward, d.trySend
	if d.source != nil {
		d.in, _ = d.source.SyscallConn() // nil only if the connection is
	}
	if d.sink != nil {
		d.out, _ = d.sink.SyscallConn()
	}
	return d
}

// plain returns the TCP connection whose bytes are those of c, nil if c uses TLS.
func plain(c net.Conn) *net.TCPConn {
	switch c := c.(type) {
	case *net.TCPConn:
		return c
	case interface{ Plain() *net.TCPConn }:
		return c.Plain()
	}
	return nil
}

// run moves bytes until the source has ended, and passes that on.
func (d *direction) run(other *direction) {
	defer goroutine.Recover("move the bytes of a tunnel", func() { Reset(d.from) }, func() { Reset(d.to) })
	err := d.copyAll()
	if half, ok := d.to.(interface{ CloseWrite() error }); err == nil && ok && half.CloseWrite() == nil {
		other.limit()
		return
	}
	if errors.Is(err, errSilent) {
		_ = d.from.Close()
		_ = d.to.Close()
		return
	}
	Reset(d.from)
	Reset(d.to)
}

// copyAll sends what a loop has received, and then copies.
func (d *direction) copyAll() error {
	first := d.rest
	if d.rest = nil; len(first) > 0 {
		if _, err := d.to.Write(first); err != nil {
			return err
		}
	}
	return d.copy()
}

// copy returns nil at the end of the source.
func (d *direction) copy() error {
	for {
		n, err := d.move()
		d.moved.Add(n)
		switch {
		case err == nil:
		case err == io.EOF:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case !d.again():
			return errSilent
		}
	}
}

// limit begins to limit how long the direction may be silent.
func (d *direction) limit() {
	if d.delay < 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last, d.seen = true, d.moved.Load()
	_ = d.from.SetReadDeadline(time.Now().Add(d.delay)) // fails only with the connection
}

// again decides after a deadline whether to continue.
func (d *direction) again() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	next := time.Time{}
	if d.last {
		moved := d.moved.Load()
		if moved == d.seen {
			return false
		}
		d.seen, next = moved, time.Now().Add(d.delay)
	}
	return d.from.SetReadDeadline(next) == nil
}

// move moves some bytes, and waits for them if there are none.
func (d *direction) move() (int64, error) {
	switch {
	case d.full >= bulkAfter && d.source != nil && d.sink != nil:
		return d.splice()
	case d.source != nil:
		return d.carry()
	}
	return d.carrySecure()
}

// carry copies from a TCP connection until it ends, until large amounts arrive, or until the sink must be
// waited for.
func (d *direction) carry() (int64, error) {
	d.failed = nil
	err := d.in.Read(d.forward)
	if d.buffer == nil {
		if d.failed != nil {
			err = d.failed
		}
		return 0, err
	}
	defer func() {
		buffers.Put(d.buffer)
		d.buffer, d.rest = nil, nil
	}()
	n, err := d.to.Write(d.rest)
	return int64(n), err
}

// tryForward copies what is readable, without blocking. It returns false if there is nothing more. It stays
// in raw.Read as long as it can: each message then costs one wake-up and three system calls.
func (d *direction) tryForward(fd uintptr) bool {
	b := buffers.Get().(*[bufferSize]byte)
	for {
		n, errno := nonblock.Receive(fd, b[:], 0)
		switch {
		case errno == unix.EAGAIN:
			buffers.Put(b)
			return false
		case errno != 0:
			d.failed = errno
		case n == 0:
			d.failed = io.EOF
		}
		if d.failed != nil {
			buffers.Put(b)
			return true
		}
		if d.full++; n < len(b) {
			d.full = 0
		}
		if d.rest = b[:n]; !d.sendRest() {
			d.buffer = b
			return true
		}
		if d.full >= bulkAfter && d.sink != nil {
			buffers.Put(b)
			return true
		}
	}
}

// sendRest sends what was received, and returns false if it could not send all of it at once.
func (d *direction) sendRest() bool {
	if d.out != nil {
		n := len(d.rest)
		_ = d.out.Write(d.send) // fails only if the connection is closed, as the next write does
		d.moved.Add(int64(n - len(d.rest)))
	}
	return len(d.rest) == 0
}

func (d *direction) trySend(fd uintptr) bool {
	if n, errno := nonblock.Send(fd, d.rest); errno == 0 {
		d.rest = d.rest[n:]
	}
	return true
}

// carrySecure copies from a TLS connection, which needs a buffer while it waits: a small one
// as long as little arrives.
func (d *direction) carrySecure() (int64, error) {
	if d.small == nil {
		d.small = make([]byte, smallSize)
	}
	b := d.small
	if d.full > 0 {
		large := buffers.Get().(*[bufferSize]byte)
		defer buffers.Put(large)
		b = large[:]
	}
	n, err := d.from.Read(b)
	if d.full = 0; n >= smallSize {
		d.full = 1
	}
	if n == 0 {
		return 0, err
	}
	moved, failed := d.to.Write(b[:n])
	if failed != nil {
		err = failed
	}
	return int64(moved), err
}

// splice lets the kernel move the bytes. The deadline ends it when nothing arrives.
func (d *direction) splice() (int64, error) {
	d.mu.Lock()
	if !d.last {
		_ = d.from.SetReadDeadline(time.Now().Add(quiet)) // fails only with the connection
	}
	d.mu.Unlock()
	n, err := d.sink.ReadFrom(&io.LimitedReader{R: d.source, N: spliceStep})
	if err == nil && n < spliceStep {
		err = io.EOF
	}
	if err != nil {
		d.full = 0
	}
	return n, err
}

// Reset closes a connection so that its peer notices a failure.
func Reset(c net.Conn) {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	if tcp := plain(c); tcp != nil {
		_ = tcp.SetLinger(0) // fails only if it is closed already
	}
	_ = c.Close()
}
