package h1

import "io"

// Theory of operation. The Go runtime's poller reports once that bytes have arrived (EPOLLET), and a
// read forgets earlier reports when it begins. So each read has to ask the kernel first, and between two
// requests that finds nothing. Only inside one call of RawConn.Read no report is lost: the function that
// it calls serves a request and returns false, and the runtime waits for the next report.
//
// The function holds the connection's read lock while the handler runs. So it serves simple requests
// only: those without a body, and without Upgrade. All others are served by serve. The handler must not
// wait for the read lock, and closing the connection waits for the handler.
//
// One report can cover more than one read returns: the client's end behind a request. Clients that end
// their side after a request mostly send no other one, so the function reads once more after the first
// request. After later ones, the end is seen when the connection is parked.

// simple is the state of serveSimple.
type simple struct {
	serve func(fd uintptr) bool
	// running: a handler runs inside of RawConn.Read.
	running bool
	// parsed: the request is not simple and was parsed, with the error err.
	parsed bool
	err    error
	// served: the connection has served a simple request.
	served bool
	// last: the request was answered and the connection must close, after next if whole.
	last, whole bool
}

// serveSimple waits for requests and serves the simple ones. It returns true if c.request is another
// one. Without an error, the head of a request may be incomplete.
func (c *conn) serveSimple() (found bool, err error) {
	s := &c.simple
	s.parsed, s.err, s.last = false, nil, false
	err = c.raw.Read(s.serve)
	switch {
	case err != nil:
		return false, c.ends(err)
	case s.parsed:
		return true, s.err
	case s.last:
		if s.whole {
			c.next()
		}
		return false, io.EOF
	case c.input.err != nil:
		return false, io.EOF
	}
	return false, nil
}

// tryServe reads once, and serves the request if it is a simple one. It returns false if the connection
// waits for the next bytes.
func (c *conn) tryServe(fd uintptr) bool {
	if !c.tryRead(fd) {
		return false
	}
	s := &c.simple
	n := c.buffered()
	// If the buffer is full, more may be there.
	if c.input.err != nil || n > c.server.maxHead() || n == len(c.buf) || headEnd(c.bytes(), 0) != n {
		return true
	}
	c.begun()
	if s.err = c.take(n); s.err != nil || c.body != nil || c.request.Header["Upgrade"] != nil {
		s.parsed = true
		return true
	}
	s.running = true
	s.whole = c.handle()
	s.running = false
	s.last = !s.whole || c.w.closing
	if s.last {
		return true
	}
	c.next()
	if s.last = !c.idle(c.server.now.Load()); s.last || s.served {
		return s.last
	}
	s.served = true
	return c.tryServe(fd)
}
