package load

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// receive reads a part of an answer.
func (c *httpClient) receive(x *httpConn) error {
	room := c.scratch
	if x.step != stepBody {
		room = x.in[len(x.in):cap(x.in)]
	}
	n, errno := rawRead(x.fd, room)
	switch {
	case errno == unix.EINTR || errno == unix.EAGAIN:
		return nil
	case errno != 0:
		return failed("receive from", c.target, errno)
	case n == 0:
		return c.ended(x)
	case x.step == stepBody:
		return c.more(x, int64(n))
	case x.step == stepIdle || x.step == stepEnd:
		return fmt.Errorf("receive from %s: more than one answer", c.target)
	}
	x.in = x.in[:len(x.in)+n]
	if x.step == stepFrame {
		return c.frame(x)
	}
	return c.head(x)
}

// ended handles the end of a connection, which is an error unless the request asked
// for it.
func (c *httpClient) ended(x *httpConn) error {
	if x.step != stepEnd {
		return unexpected(&stream{peer: c.target}, io.EOF)
	}
	rawClose(x.fd)
	delete(c.conns, x.fd)
	c.t.connections.Add(1)
	x.step = stepIdle
	c.open--
	if c.j.quiet.Load() {
		return nil
	}
	if err := c.dial(x); err != nil {
		return err
	}
	return c.send(x, c.j.clock.now())
}

// head reads the head of an answer.
func (c *httpClient) head(x *httpConn) error {
	m, ok, err := parseMessage(x.in)
	if err != nil || !ok {
		return err
	}
	if c.j.spec.Workload == WSRR {
		if len(x.in) > m.size {
			return errors.New("a WebSocket frame came unasked")
		}
		if err := status(x.in, "101"); err != nil {
			return err
		}
		return c.answered(x)
	}
	if err := status(x.in, "200"); err != nil {
		return err
	}
	if m.length < 0 {
		return errors.New("the answer has no Content-Length")
	}
	x.step, x.left = stepBody, m.length
	return c.more(x, int64(len(x.in)-m.size))
}

// more counts n bytes of an answer's body.
func (c *httpClient) more(x *httpConn, n int64) error {
	c.t.receivedBytes.Add(uint64(n))
	switch x.left -= n; {
	case x.left < 0:
		return errors.New("the answer is longer than its Content-Length")
	case x.left > 0:
		x.since = c.j.clock.now()
		return nil
	}
	return c.answered(x)
}

// frame compares a WebSocket frame with the one that must come back.
func (c *httpClient) frame(x *httpConn) error {
	if len(x.in) < len(c.echo) {
		return nil
	}
	if string(x.in) != string(c.echo) {
		return errors.New("the WebSocket frame that came back is another one")
	}
	c.t.sentBytes.Add(uint64(c.j.spec.Size))
	c.t.receivedBytes.Add(uint64(c.j.spec.Size))
	return c.answered(x)
}

// answered ends a request.
func (c *httpClient) answered(x *httpConn) error {
	now := c.j.clock.now()
	x.since, x.freed = now, now
	c.j.record(c.t, x.intended, x.sent, now)
	if c.j.spec.Workload == HTTPCRR {
		x.step = stepEnd
		return nil
	}
	x.step = stepIdle
	c.open--
	return c.next(x)
}

// next begins the connection's next request if it is time for one.
func (c *httpClient) next(x *httpConn) error {
	switch {
	case c.j.quiet.Load() || !c.running:
		return nil
	case c.pace != nil:
		c.idle = append(c.idle, x)
		return c.sendWaiting()
	}
	return c.send(x, c.j.clock.now())
}
