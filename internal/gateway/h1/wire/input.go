// Package wire has what both sides of HTTP/1.1 read and write: buffers of connections, fields, chunks, the state of
// sockets, and the errors of forwarding.
//
// It knows neither requests nor responses.
package wire

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"fairlead/internal/gateway/nonblock"
)

// BufferSize is the size of the pooled buffers, and so of the largest head of a response.
const BufferSize = 64 << 10

// SmallSize is the size of the buffers in which a part of a head waits for the rest.
const SmallSize = 4 << 10

// Buffers and smallBuffers keep unused buffers.
var (
	Buffers      = sync.Pool{New: func() any { return new([BufferSize]byte) }}
	smallBuffers = sync.Pool{New: func() any { return new([SmallSize]byte) }}
)

// ErrFull is returned by fill if a head or a line is longer than the buffer.
var ErrFull = errors.New("head or line is too long")

// Input reads a connection through a buffer. While a plain TCP connection waits for its first byte,
// Input has no buffer, and a small one while it waits for the rest of a head. Other connections have a
// Small one in both cases. So many waiting connections cost little memory, whatever their clients
// have sent. Only one goroutine may use it.
type Input struct {
	Conn net.Conn
	// Raw is nil if the connection is not a TCP connection.
	Raw syscall.RawConn
	Buf []byte
	// buf[r:w] was read from the connection and is not consumed.
	r, w int
	// Max is the largest size of the buffer.
	Max int
	// Small is true if the connection waits for a head, and cannot be asked whether a byte is there.
	Small bool
	// wait, if not nil, is called before a read that may block.
	Wait func()

	read func(fd uintptr) bool
	Err  error
}

// TCPOf returns the TCP connection if c is one without TLS, perhaps with other addresses.
func TCPOf(c net.Conn) *net.TCPConn {
	if p, ok := c.(interface{ Plain() *net.TCPConn }); ok {
		return p.Plain()
	}
	t, _ := c.(*net.TCPConn)
	return t
}

// RawOf returns the socket below c, which may be a TLS connection or another wrapper with the method
// NetConn, or nil.
func RawOf(c net.Conn) syscall.RawConn {
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

// Init makes a zero Input the buffer of a connection.
func (in *Input) Init(c net.Conn) {
	in.Conn, in.Max = c, BufferSize
	in.read = in.TryRead
	if TCPOf(c) != nil {
		in.Raw = RawOf(c)
	}
}

// Buffered returns how many bytes were read and are not consumed.
func (in *Input) Buffered() int { return in.w - in.r }

// Bytes returns what was read and is not consumed.
func (in *Input) Bytes() []byte { return in.Buf[in.r:in.w] }

// Consume drops n bytes of the buffer. An empty buffer goes back to the pool.
func (in *Input) Consume(n int) {
	if in.r += n; in.r == in.w {
		in.Release()
	}
}

// Release gives the buffer back. Bytes that are not consumed are lost.
func (in *Input) Release() {
	in.r, in.w = 0, 0
	switch len(in.Buf) {
	case BufferSize:
		Buffers.Put((*[BufferSize]byte)(in.Buf))
	case SmallSize:
		smallBuffers.Put((*[SmallSize]byte)(in.Buf))
	}
	in.Buf = nil
}

// shrink replaces a large buffer that has nothing, or only the beginning of a head or line, by one that
// has at most four times the size of what it holds.
func (in *Input) shrink() {
	n := in.Buffered()
	if n == 0 {
		in.Release()
		return
	}
	size := SmallSize
	for size < 2*n {
		size *= 2
	}
	if size >= len(in.Buf) {
		return
	}
	var smaller []byte
	if size == SmallSize {
		smaller = smallBuffers.Get().(*[SmallSize]byte)[:]
	} else {
		smaller = make([]byte, size)
	}
	copy(smaller, in.Bytes())
	in.Release()
	in.Buf, in.w = smaller, n
}

// Fill reads at least one byte. It returns errFull if the buffer has its largest size and is full.
func (in *Input) Fill() error {
	if in.Buf != nil && in.w == len(in.Buf) {
		if err := in.room(); err != nil {
			return err
		}
	}
	if in.Raw != nil {
		if err := in.Raw.Read(in.read); err != nil {
			return err
		}
		return in.Err
	}
	switch {
	case in.Buf != nil:
	case in.Small:
		in.Buf = smallBuffers.Get().(*[SmallSize]byte)[:]
	default:
		in.Buf = Buffers.Get().(*[BufferSize]byte)[:]
	}
	if in.Wait != nil {
		in.Wait()
	}
	n, err := in.Conn.Read(in.Buf[in.w:])
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
func (in *Input) room() error {
	if in.r > 0 {
		in.w = copy(in.Buf, in.Buf[in.r:in.w])
		in.r = 0
		return nil
	}
	if len(in.Buf) >= in.Max {
		return ErrFull
	}
	larger := make([]byte, min(2*len(in.Buf), in.Max))
	n := copy(larger, in.Buf[:in.w])
	in.Release()
	in.Buf, in.w = larger, n
	return nil
}

// TryRead reads once without blocking, and returns false if there is nothing to read.
func (in *Input) TryRead(fd uintptr) bool {
	if in.Buf == nil {
		in.Buf = Buffers.Get().(*[BufferSize]byte)[:]
	}
	n, errno := nonblock.Receive(fd, in.Buf[in.w:], 0)
	if errno == syscall.EAGAIN {
		in.shrink()
		if in.Wait != nil {
			in.Wait()
		}
		return false
	}
	switch {
	case errno != 0:
		in.Err = errno
	case n == 0:
		in.Err = io.EOF
	default:
		in.Err = nil
		in.w += n
	}
	return true
}
