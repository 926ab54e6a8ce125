package h1

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"fairlead/internal/gateway/nonblock"
)

// bufferSize is the size of the pooled buffers, and so of the largest head of a response.
const bufferSize = 64 << 10

// smallSize is the size of the buffers in which a part of a head waits for the rest.
const smallSize = 4 << 10

// buffers and smallBuffers keep unused buffers.
var (
	buffers      = sync.Pool{New: func() any { return new([bufferSize]byte) }}
	smallBuffers = sync.Pool{New: func() any { return new([smallSize]byte) }}
)

// errFull is returned by fill if a head or a line is longer than the buffer.
var errFull = errors.New("head or line is too long")

// input reads a connection through a buffer. While a plain TCP connection waits for its first byte,
// input has no buffer, and a small one while it waits for the rest of a head. Other connections have a
// small one in both cases. So many waiting connections cost little memory, whatever their clients
// have sent. Only one goroutine may use it.
type input struct {
	conn net.Conn
	// raw is nil if the connection is not a TCP connection.
	raw syscall.RawConn
	buf []byte
	// buf[r:w] was read from the connection and is not consumed.
	r, w int
	// max is the largest size of the buffer.
	max int
	// small is true if the connection waits for a head, and cannot be asked whether a byte is there.
	small bool
	// wait, if not nil, is called before a read that may block.
	wait func()

	read func(fd uintptr) bool
	err  error
}

// tcpOf returns the TCP connection if c is one without TLS, perhaps with other addresses.
func tcpOf(c net.Conn) *net.TCPConn {
	if p, ok := c.(interface{ Plain() *net.TCPConn }); ok {
		return p.Plain()
	}
	t, _ := c.(*net.TCPConn)
	return t
}

// rawOf returns the socket below c, which may be a TLS connection or another wrapper with the method
// NetConn, or nil.
func rawOf(c net.Conn) syscall.RawConn {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

func (in *input) init(c net.Conn) {
	in.conn, in.max = c, bufferSize
	in.read = in.tryRead
	if tcpOf(c) != nil {
		in.raw = rawOf(c)
	}
}

func (in *input) buffered() int { return in.w - in.r }

// bytes returns what was read and is not consumed.
func (in *input) bytes() []byte { return in.buf[in.r:in.w] }

// consume drops n bytes of the buffer. An empty buffer goes back to the pool.
func (in *input) consume(n int) {
	if in.r += n; in.r == in.w {
		in.release()
	}
}

// release gives the buffer back. Bytes that are not consumed are lost.
func (in *input) release() {
	in.r, in.w = 0, 0
	switch len(in.buf) {
	case bufferSize:
		buffers.Put((*[bufferSize]byte)(in.buf))
	case smallSize:
		smallBuffers.Put((*[smallSize]byte)(in.buf))
	}
	in.buf = nil
}

// shrink replaces a large buffer that has nothing, or only the beginning of a head or line, by one that
// has at most four times the size of what it holds.
func (in *input) shrink() {
	n := in.buffered()
	if n == 0 {
		in.release()
		return
	}
	size := smallSize
	for size < 2*n {
		size *= 2
	}
	if size >= len(in.buf) {
		return
	}
	var smaller []byte
	if size == smallSize {
		smaller = smallBuffers.Get().(*[smallSize]byte)[:]
	} else {
		smaller = make([]byte, size)
	}
	copy(smaller, in.bytes())
	in.release()
	in.buf, in.w = smaller, n
}

// fill reads at least one byte. It returns errFull if the buffer has its largest size and is full.
func (in *input) fill() error {
	if in.buf != nil && in.w == len(in.buf) {
		if err := in.room(); err != nil {
			return err
		}
	}
	if in.raw != nil {
		if err := in.raw.Read(in.read); err != nil {
			return err
		}
		return in.err
	}
	switch {
	case in.buf != nil:
	case in.small:
		in.buf = smallBuffers.Get().(*[smallSize]byte)[:]
	default:
		in.buf = buffers.Get().(*[bufferSize]byte)[:]
	}
	if in.wait != nil {
		in.wait()
	}
	n, err := in.conn.Read(in.buf[in.w:])
	in.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// room makes room behind buf[r:w].
func (in *input) room() error {
	if in.r > 0 {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
		return nil
	}
	if len(in.buf) >= in.max {
		return errFull
	}
	larger := make([]byte, min(2*len(in.buf), in.max))
	n := copy(larger, in.buf[:in.w])
	in.release()
	in.buf, in.w = larger, n
	return nil
}

// tryRead reads once without blocking, and returns false if there is nothing to read.
func (in *input) tryRead(fd uintptr) bool {
	if in.buf == nil {
		in.buf = buffers.Get().(*[bufferSize]byte)[:]
	}
	n, errno := nonblock.Receive(fd, in.buf[in.w:], 0)
	if errno == syscall.EAGAIN {
		in.shrink()
		if in.wait != nil {
			in.wait()
		}
		return false
	}
	switch {
	case errno != 0:
		in.err = errno
	case n == 0:
		in.err = io.EOF
	default:
		in.err = nil
		in.w += n
	}
	return true
}
