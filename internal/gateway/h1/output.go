package h1

import (
	"io"
	"net"
	"syscall"

	"fairlead/internal/gateway/nonblock"
)

// output writes to a connection. Only one goroutine may use it.
type output struct {
	conn net.Conn
	// raw is nil if the connection is not a TCP connection.
	raw syscall.RawConn
	p   []byte
	n   int
	err error
	try func(fd uintptr) bool
}

func (o *output) init(c net.Conn, raw syscall.RawConn) {
	o.conn, o.raw = c, raw
	o.try = o.tryWrite
}

// write writes all of p, or returns an error and the number of bytes that were written.
func (o *output) write(p []byte) (int, error) {
	if o.raw == nil {
		return o.conn.Write(p)
	}
	o.begin(p)
	err := o.raw.Write(o.try)
	n, failed := o.end()
	if err == nil {
		err = failed
	}
	return n, err
}

// begin prepares tryWrite for p; end returns how much of it was written, and the error.
func (o *output) begin(p []byte) { o.p, o.n, o.err = p, 0, nil }

func (o *output) end() (int, error) {
	o.p = nil
	return o.n, o.err
}

// tryWrite writes without blocking, and returns false if the socket accepts no more.
func (o *output) tryWrite(fd uintptr) bool {
	for o.n < len(o.p) {
		n, errno := nonblock.Send(fd, o.p[o.n:])
		switch {
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			o.err = errno
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
