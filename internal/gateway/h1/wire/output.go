package wire

import (
	"io"
	"net"
	"syscall"

	"fairlead/internal/gateway/nonblock"
)

// Output writes to a connection. Only one goroutine may use it.
type Output struct {
	conn net.Conn
	// Raw is nil if the connection is not a TCP connection.
	raw syscall.RawConn
	p   []byte
	n   int
	Err error
	try func(fd uintptr) bool
}

// Init makes a zero Output write to a connection. raw is nil if it is not a TCP connection.
func (o *Output) Init(c net.Conn, raw syscall.RawConn) {
	o.conn, o.raw = c, raw
	o.try = o.TryWrite
}

// Write writes all of p, or returns an error and the number of bytes that were written.
func (o *Output) Write(p []byte) (int, error) {
	if o.raw == nil {
		return o.conn.Write(p)
	}
	o.Begin(p)
	err := o.raw.Write(o.try)
	n, failed := o.End()
	if err == nil {
		err = failed
	}
	return n, err
}

// Begin prepares TryWrite for p; End returns how much of it was written, and the error.
func (o *Output) Begin(p []byte) { o.p, o.n, o.Err = p, 0, nil }

// End returns how much TryWrite has written since Begin, and the error.
func (o *Output) End() (int, error) {
	o.p = nil
	return o.n, o.Err
}

// TryWrite writes without blocking, and returns false if the socket accepts no more.
func (o *Output) TryWrite(fd uintptr) bool {
	for o.n < len(o.p) {
		n, errno := nonblock.Send(fd, o.p[o.n:])
		switch {
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			o.Err = errno
			return true
		}
		o.n += n
	}
	return true
}

// IsDrained returns true if the reader is a part of a TCP connection that has returned n bytes, less than there was
// room for: the next read may wait, so what is buffered is to be sent before.
func IsDrained(r io.Reader, n, room int) bool {
	limited, ok := r.(*io.LimitedReader)
	if !ok || n == room || limited.N == 0 {
		return false
	}
	_, ok = limited.R.(*net.TCPConn)
	return ok
}
