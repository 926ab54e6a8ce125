// Package h2 is between clients of HTTP/2 and net/http's server. Conn corrects what a client sends
// before the server reads it, where the server's answer differs from what RFC 9113 asks for; it changes
// nothing that well-behaved clients send. Pacer ends requests without progress.
//
// # Theory of operation
//
// Conn reads frames into a buffer and passes them on. It inspects two kinds:
//
//   - SETTINGS with several values of one parameter: the values are processed in their order (RFC 9113
//     6.5.3), so the last one counts. net/http would end the connection; Conn leaves out the others.
//   - HEADERS with fields that concern a connection, which make a request malformed (RFC 9113 8.2.2):
//     net/http would answer with 400, where the error of the stream is asked for (8.1.1). Conn
//     appends a field to the header block that net/http resets the stream for. The table of HPACK
//     stays as it is.
//
// The header block is not decoded: a field that is only an index of the table is not recognised. The
// server refuses such requests itself. Each connection must begin with the preface.
package h2

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
)

// maxFrame is the largest frame, which the server must announce (SETTINGS_MAX_FRAME_SIZE).
const maxFrame = 1 << 14

// header is the length of a frame's header.
const header = 9

// largeSize is the size of the buffers for large frames with what is appended to them, smallSize that of
// the one that each connection has: many idle connections must cost little memory.
const (
	largeSize = header + maxFrame + len(malformedField)
	smallSize = 512
)

var buffers = sync.Pool{New: func() any { return new([largeSize]byte) }}

// errPreface ends a connection that begins with something else.
var errPreface = errors.New("the connection does not begin with the preface of HTTP/2")

// Conn is a client's connection.
type Conn struct {
	net.Conn
	// buf[r:w] was read. Of it, passed bytes may be read by the server; if they are more than
	// there are, the rest of a frame's payload.
	buf       []byte
	r, w      int
	passed    int
	inspected bool // the preface
	// heard is called when the first head of a request is complete, and is nil afterwards.
	heard func()
	// newest is the stream of the newest request.
	newest uint32
	resets Resets
	small  [smallSize]byte
}

// malformedField is a field whose name is malformed, without indexing (RFC 7541 6.2.2).
const malformedField = "\x00\x01A\x00"

// New returns the connection for the server. It calls heard when the first head of a request is complete.
func New(c net.Conn, heard func()) *Conn { return &Conn{Conn: c, heard: heard} }

// NetConn returns the connection below, as tls.Conn does.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// errFault ends a connection after a mistake in the gateway.
var errFault = errors.New("a mistake in the gateway has ended the connection")

// release empties the buffer.
func (c *Conn) release() {
	if len(c.buf) == largeSize {
		buffers.Put((*[largeSize]byte)(c.buf))
	}
	c.buf, c.r, c.w = nil, 0, 0
}

// need reads until the buffer has n bytes.
func (c *Conn) need(n int) error {
	if c.buf == nil {
		c.buf = c.small[:]
	}
	if n > c.limit() {
		large := buffers.Get().(*[largeSize]byte)[:]
		held := copy(large, c.buf[c.r:c.w])
		c.release()
		c.buf, c.w = large, held
	}
	if c.r+n > c.limit() {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	for c.w-c.r < n {
		read, err := c.Conn.Read(c.buf[c.w:c.limit()])
		c.w += read
		if err != nil && c.w-c.r < n {
			return err
		}
	}
	return nil
}

// limit is the end of what is read into the buffer. Behind it is room for what is appended.
func (c *Conn) limit() int { return len(c.buf) - len(malformedField) }

// setLength changes the length of the frame.
func (c *Conn) setLength(length int) {
	kind := c.buf[c.r+3]
	binary.BigEndian.PutUint32(c.buf[c.r:], uint32(length)<<8)
	c.buf[c.r+3] = kind
	c.passed = header + length
}
