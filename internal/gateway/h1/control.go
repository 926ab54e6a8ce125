package h1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"fairlead/internal/gateway/h1/wire"
)

// errUnread is the error of Hijack while a part of the request's body is not read.
var errUnread = errors.New("the request's body is not read to its end: read it before Hijack")

// Hijack implements http.Hijacker. It refuses a connection whose request has a body that was not read to its
// end: another goroutine may still read it, and its rest does not belong to the other protocol.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c := w.conn
	switch {
	case w.hijacked:
		return nil, nil, http.ErrHijacked
	case c.body != nil && !c.body.whole.Load():
		return nil, nil, errUnread
	}
	if w.status != 0 {
		if !w.framed {
			w.frame(false)
		}
		w.send(nil)
	}
	c.server.remove(c)
	w.hijacked = true
	w.release()
	held := bytes.Clone(c.Bytes())
	c.Release()
	_ = c.Conn.SetDeadline(time.Time{})
	br := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(held), c.Conn), max(4096, len(held)))
	if len(held) > 0 {
		_, _ = br.Peek(len(held))
	}
	return c.Conn, bufio.NewReadWriter(br, bufio.NewWriter(c.Conn)), nil
}

// SetReadDeadline is for http.ResponseController.
func (w *writer) SetReadDeadline(t time.Time) error {
	w.conn.deadlines.Store(true)
	return w.conn.Conn.SetReadDeadline(t)
}

// SetWriteDeadline is for http.ResponseController.
func (w *writer) SetWriteDeadline(t time.Time) error {
	w.conn.deadlines.Store(true)
	return w.conn.Conn.SetWriteDeadline(t)
}

// EnableFullDuplex is for http.ResponseController. It is always enabled.
func (w *writer) EnableFullDuplex() error { return nil }

// reset resets the connection. FIN would make a response look complete that the end of the connection ends, and so
// would the alert with which TLS closes: the socket is closed below it.
func (c *conn) reset() {
	socket := c.Conn
	for {
		outer, ok := socket.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		socket = outer.NetConn()
	}
	if tcp := wire.TCPOf(socket); tcp != nil {
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
	}
}
