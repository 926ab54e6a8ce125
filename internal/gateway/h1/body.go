package h1

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"fairlead/internal/gateway/h1/wire"
)

// maxDiscard is how much of a body that the handler has not read is read to keep the connection.
const maxDiscard = 256 << 10

// setBody gives the request its body.
func (c *conn) setBody() {
	r := c.request
	c.w.expect.Store(false)
	c.body = nil
	if r.ContentLength == 0 {
		r.Body = http.NoBody
		return
	}
	b := &requestBody{conn: c, left: r.ContentLength, chunked: r.ContentLength < 0, request: r}
	b.decoder.Reset(&c.Input)
	b.decoder.Strict = true
	c.body, r.Body = b, b
	if e := r.Header["Expect"]; len(e) > 0 && r.ProtoAtLeast(1, 1) && wire.HasToken(e[0], "100-continue") {
		c.w.expect.Store(true)
	}
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.conn.Buffered() == 0 {
		b.conn.w.sendContinue()
	}
	if b.ready() == 0 {
		b.conn.enter(phaseBody)
		defer b.conn.enter(phaseHandler)
	}
	b.err = wire.ErrFault // if read panics
	n, err := b.read(p)
	b.err = nil
	b.ends(err)
	b.received.Add(int64(n))
	b.last.Store(time.Now().UnixNano())
	return n, err
}

// ends stores the error of the last read, if there is one. The caller holds the lock.
func (b *requestBody) ends(err error) {
	if err != nil {
		b.err = err
		b.whole.Store(err == io.EOF)
		b.failed.Store(err != io.EOF)
	}
}

func (b *requestBody) read(p []byte) (int, error) {
	if b.chunked {
		data, err := b.decoder.Next()
		if err == io.EOF {
			b.setTrailer()
		}
		if err != nil {
			return 0, err
		}
		n := copy(p, data)
		b.decoder.Used(n)
		return n, nil
	}
	in := &b.conn.Input
	if in.Buffered() == 0 {
		if err := in.Fill(); err != nil {
			return 0, wire.Unexpected(err)
		}
	}
	data := in.Bytes()
	if int64(len(data)) > b.left {
		data = data[:b.left]
	}
	n := copy(p, data)
	in.Consume(n)
	if b.left -= int64(n); b.left == 0 {
		return n, io.EOF
	}
	return n, nil
}

// setTrailer adds the fields of the trailer to the request, as net/http does.
func (b *requestBody) setTrailer() {
	for _, f := range b.decoder.Trailer {
		if !wire.TrailerAllowed(f.Key) {
			continue
		}
		if b.request.Trailer == nil {
			b.request.Trailer = http.Header{}
		}
		b.request.Trailer[f.Key] = append(b.request.Trailer[f.Key], f.Value)
	}
}

// Close ends the use of the body by the handler. The rest is read after the response.
func (b *requestBody) Close() error { return nil }

// LastRead returns when the handler got a part of the body last.
func (b *requestBody) LastRead() time.Time { return time.Unix(0, b.last.Load()) }

// Received returns how many bytes of the body the handler has got.
func (b *requestBody) Received() int64 { return b.received.Load() }

// Buffered returns how many bytes Read returns without waiting, at most. It is 0 if the client waits
// for an interim response.
func (b *requestBody) Buffered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil || b.err != nil || b.conn.w.expect.Load() {
		return 0
	}
	return b.ready()
}

// ready returns how many bytes of the body are in the buffer. Of a chunked body, that is data of the current
// chunk only: the next chunk may be incomplete.
func (b *requestBody) ready() int {
	left := b.left
	if b.chunked {
		left = b.decoder.Left
	}
	return int(min(int64(b.conn.Buffered()), left))
}

// errLost ends a body of which it is not known how much was read.
var errLost = errors.New("a part of the request's body is lost: the server's connection has failed")

// SpliceTo implements wire.Splicer. If it fails, the body cannot be read any further.
func (b *requestBody) SpliceTo(to *net.TCPConn) (moved int64, err error) {
	defer func() {
		b.received.Add(moved)
		b.last.Store(time.Now().UnixNano())
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil || b.err != nil || b.chunked || b.conn.tcp == nil {
		return 0, b.err
	}
	c := b.conn
	if n := int(min(int64(c.Buffered()), b.left)); n > 0 {
		written, err := to.Write(c.Bytes()[:n])
		c.Consume(written)
		b.left -= int64(written)
		if moved = int64(written); err != nil {
			return moved, err
		}
	}
	c.w.sendContinue()
	limited := io.LimitedReader{R: c.tcp}
	for b.left > 0 {
		step := min(b.left, wire.SpliceStep)
		limited.N = step
		c.enter(phaseBody)
		n, err := to.ReadFrom(&limited)
		c.enter(phaseHandler)
		b.left -= n
		moved += n
		switch {
		case err != nil && (wire.IsTimeout(err) || wire.ClosedByPeer(c.socket, true)):
			// Read returns the error: the client's side has failed.
			b.ends(err)
			return moved, nil
		case err != nil:
			// The kernel may have taken bytes from the client that the server did not get.
			b.ends(errLost)
			return moved, err
		case n < step:
			b.ends(io.ErrUnexpectedEOF)
			return moved, nil
		}
	}
	b.ends(io.EOF)
	return moved, nil
}

// end detaches the body from the connection, and returns whether the next request begins at the next
// byte. It reads a short rest.
func (b *requestBody) end() bool {
	if !b.mu.TryLock() {
		// A goroutine of the handler still reads.
		b.conn.deadlines.Store(true)
		_ = b.conn.Conn.SetReadDeadline(time.Unix(1, 0))
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	c := b.conn
	b.conn = nil
	if b.err != nil {
		return b.err == io.EOF
	}
	// A client that was not asked to continue may or may not send its body.
	if c.w.expect.Load() || b.left > maxDiscard {
		return false
	}
	c.enter(phaseBody)
	defer c.enter(phaseHandler)
	b.conn = c
	defer func() { b.conn = nil }()
	buf := wire.Buffers.Get().(*[wire.BufferSize]byte)
	defer wire.Buffers.Put(buf)
	for discarded := 0; discarded < maxDiscard; {
		n, err := b.read(buf[:])
		discarded += n
		if err != nil {
			b.err = err
			return err == io.EOF
		}
	}
	return false
}

// sendContinue sends the interim response 100 if the client waits for it and the final one has not
// begun.
func (w *writer) sendContinue() {
	if !w.expect.Load() {
		return
	}
	w.interim.Lock()
	defer w.interim.Unlock()
	if !w.sealed && w.expect.Load() {
		_, _ = io.WriteString(w.conn.Conn, "HTTP/1.1 100 Continue\r\n\r\n")
		w.expect.Store(false)
	}
}
