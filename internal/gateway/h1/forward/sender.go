package forward

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/h1/wire"
)

// expectWait is how long a request with "Expect: 100-continue" waits for an interim response before
// its body is sent (RFC 9110 10.1.1). earlyWait is how long the body may take after the response.
const (
	expectWait = time.Second
	earlyWait  = 50 * time.Millisecond
)

// available is a request's body that knows how many bytes it returns without waiting.
type available interface{ Buffered() int }

// startSender writes the head, with the part of the body that is there, and starts to send the rest.
func (x *exchange) startSender() *wire.Error {
	r := x.r
	s := &sender{u: x.u, r: r, left: r.ContentLength, chunked: r.ContentLength < 0}
	if !x.expect {
		if err := x.appendAvailable(s); err != nil {
			return err
		}
	}
	if n, err := x.u.Conn.Write(x.out); err != nil && (n == 0 || x.expect) {
		return &wire.Error{Op: "write request", Err: err, Sent: n > 0}
	}
	if r.ProtoMajor == 1 {
		_ = http.NewResponseController(x.w).EnableFullDuplex()
	}
	s.proceed, s.stop, s.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if !x.expect {
		s.allow()
	}
	x.sender = s
	goroutine.Go("send the body of a request", s.run)
	return nil
}

// appendAvailable appends to x.out what the body returns without waiting.
func (x *exchange) appendAvailable(s *sender) *wire.Error {
	a, ok := x.r.Body.(available)
	if !ok || a.Buffered() == 0 {
		return nil
	}
	n := min(a.Buffered(), MaxInline)
	if cap(x.body) < MaxInline {
		x.body = make([]byte, MaxInline)
	}
	n, err := x.r.Body.Read(x.body[:n])
	if err != nil && err != io.EOF {
		return &wire.Error{Op: "read request body", Err: err, BodyRead: true, Client: true}
	}
	if n > 0 && s.chunked {
		x.out = strconv.AppendInt(x.out, int64(n), 16)
		x.out = append(x.out, '\r', '\n')
	}
	x.out = append(x.out, x.body[:n]...)
	if n > 0 && s.chunked {
		x.out = append(x.out, '\r', '\n')
	}
	if !s.chunked {
		s.left -= int64(n)
	}
	return nil
}

// allow lets the body of a request with Expect be sent. Only the goroutine that reads the response
// calls it.
func (s *sender) allow() {
	if !s.allowed {
		s.allowed = true
		close(s.proceed)
	}
}

func (s *sender) run() {
	defer close(s.done)
	defer goroutine.Recover("send the body of a request", func() {
		s.readErr = wire.ErrFault
		s.u.abort(wire.ErrFault)
	})
	if !s.mayBegin() {
		return
	}
	var writeErr error
	if s.readErr, writeErr = s.copy(); s.readErr != nil {
		// A message that is not complete must not stay on the connection.
		s.u.abort(s.readErr)
	}
	s.complete = s.readErr == nil && writeErr == nil
	if s.complete {
		s.u.sent()
	}
}

// mayBegin waits until the body may be sent. It returns false if the response is there before that.
func (s *sender) mayBegin() bool {
	timer := time.NewTimer(expectWait)
	defer timer.Stop()
	select {
	case <-s.proceed:
		return true
	case <-timer.C:
		return true
	case <-s.stop:
	}
	select {
	case <-s.proceed:
		return true // the response came before this goroutine ran
	default:
		return false
	}
}

// copy sends the body. It returns an error of the body or one of the server's connection. The latter
// is no failure of the request: the server may have answered before it closed.
func (s *sender) copy() (readErr, writeErr error) {
	if from, ok := s.r.Body.(wire.Splicer); ok && s.u.tcp != nil && s.left >= wire.BufferSize {
		n, err := from.SpliceTo(s.u.tcp)
		s.left -= n
		if err != nil || s.left == 0 {
			return nil, err
		}
	}
	buf := wire.Buffers.Get().(*[wire.BufferSize]byte)
	defer wire.Buffers.Put(buf)
	// Room for the size line before the data and for CRLF after it.
	const before = 8
	for s.left != 0 {
		p := buf[before : wire.BufferSize-2]
		if s.left > 0 && int64(len(p)) > s.left {
			p = p[:s.left]
		}
		n, err := s.r.Body.Read(p)
		if n > 0 {
			if _, werr := s.u.Conn.Write(s.frame(buf, before, n)); werr != nil {
				return nil, werr
			}
		}
		if s.left > 0 {
			s.left -= int64(n)
		}
		switch {
		case err == io.EOF && s.left > 0:
			return io.ErrUnexpectedEOF, nil
		case err == io.EOF:
			return nil, s.end()
		case err != nil:
			return err, nil
		}
	}
	return nil, nil
}

// frame returns the n bytes of data behind before, in a chunk if the body is chunked.
func (s *sender) frame(buf *[wire.BufferSize]byte, before, n int) []byte {
	if !s.chunked {
		return buf[before : before+n]
	}
	var size [sizeLine]byte
	line := append(strconv.AppendInt(size[:0], int64(n), 16), '\r', '\n')
	start := before - len(line)
	copy(buf[start:], line)
	copy(buf[before+n:], "\r\n")
	return buf[start : before+n+2]
}

// sizeLine is the length of the longest size line: 4 digits and CRLF.
const sizeLine = 6

// end sends the last chunk and the trailer.
func (s *sender) end() error {
	if !s.chunked {
		return nil
	}
	out := []byte("0\r\n")
	if len(s.r.Trailer) > 0 {
		out = appendTrailer(out, s.r.Trailer)
	}
	_, err := s.u.Conn.Write(append(out, '\r', '\n'))
	return err
}

// appendTrailer appends the trailer fields that are valid and allowed in a trailer (RFC 9110 6.5.1).
func appendTrailer(out []byte, trailer http.Header) []byte {
	for key, values := range trailer {
		for _, v := range values {
			if !wire.TrailerAllowed(key) || !wire.All(key, wire.IsToken) || !wire.ValidValue(v) {
				continue
			}
			out = append(out, key...)
			out = append(out, ':', ' ')
			out = append(out, v...)
			out = append(out, '\r', '\n')
		}
	}
	return out
}

// finish ends the sender after the response, and returns whether the whole body was sent. The
// request's body is not read afterwards. It can be called again, by the goroutine that reads the response.
func (s *sender) finish(x *exchange, failed bool) bool {
	select {
	case <-s.stop:
		return s.complete
	default:
		close(s.stop)
	}
	if !failed {
		timer := time.NewTimer(earlyWait)
		select {
		case <-s.done:
		case <-timer.C:
		}
		timer.Stop()
	}
	select {
	case <-s.done:
	default:
		s.u.abort(wire.ErrEarly)
		if err := http.NewResponseController(x.w).SetReadDeadline(time.Unix(1, 0)); err != nil {
			_ = s.r.Body.Close()
		}
		<-s.done
	}
	return s.complete
}
