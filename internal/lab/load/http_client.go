package load

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is the size in bytes of the parts in which large bodies are sent and
// received.
const chunk = 256 << 10

// highest is the priority of a thread that sends by a schedule (setpriority(2)).
const highest = -20

// httpClient drives a share of the client's connections on one thread. Without a
// rate, each connection sends its next request as soon as it has its answer. At a
// fixed rate, a request that is due is sent on any connection that waits for none,
// or on the next that becomes free.
type httpClient struct {
	j       *job
	t       *thread
	poll    *poller
	target  netip.AddrPort
	address []byte // the target's, in the kernel's format
	conns   map[int]*httpConn
	// request is what is sent for each: a head, or a WebSocket frame. echo is the
	// frame that comes back.
	request, echo []byte
	scratch       []byte
	// pace is nil without a rate. idle are the connections without a request, waiting
	// the intended times of requests without a connection.
	pace    *pace
	idle    []*httpConn
	waiting []int64
	// open counts the requests without an answer.
	open    int
	checked int64
	// running: the connections send one request after another.
	running bool
}

// step is what a connection waits for.
type step int

const (
	stepIdle  step = iota // nothing
	stepOpen              // the connection, or room for the request
	stepHead              // an answer's head
	stepBody              // the rest of its body
	stepEnd               // the end of the connection
	stepFrame             // a WebSocket frame
)

// httpConn is one of the client's connections.
type httpConn struct {
	fd   int
	step step
	// out is what remains of the request's head, body what remains of its body.
	// blocked: the socket has no room for it.
	out     []byte
	body    int
	blocked bool
	// in is the received part of the answer's head, left what remains of its body.
	in   []byte
	left int64
	// intended and sent are the times of the request, since that of the last
	// progress.
	intended, sent, since int64
	// freed is when the connection got its last answer.
	freed int64
}

// connectHTTP opens the client's connections and starts their threads.
func (j *job) connectHTTP(target netip.AddrPort) error {
	if j.spec.TLS {
		return j.connectTLS(target)
	}
	address, err := rawAddress(target)
	if err != nil {
		return err
	}
	for i := range j.spec.threads() {
		c := &httpClient{j: j, t: j.newThread(), target: target, address: address, conns: map[int]*httpConn{},
			request: j.spec.request(), scratch: pattern(chunk)}
		if c.poll, err = newPoller(); err != nil {
			return err
		}
		if err = c.prepare(j.spec.share(i)); err != nil {
			c.close()
			return err
		}
		j.lock(&j.senders, func() error {
			defer c.close()
			return c.run(i)
		})
	}
	return nil
}

// prepare opens connections. If they are kept, each has made one request when it
// returns.
func (c *httpClient) prepare(conns int) error {
	for range conns {
		x := &httpConn{in: make([]byte, 0, maxHead)}
		if err := c.dial(x); err != nil {
			return err
		}
		if err := c.send(x, c.j.clock.now()); err != nil {
			return err
		}
		if c.j.spec.Workload == HTTPCRR {
			continue // the loop goes on with it
		}
		for c.open > 0 {
			if err := c.events(tick); err != nil {
				return err
			}
		}
	}
	if c.j.spec.Workload == WSRR {
		c.request, c.echo = frames(pattern(c.j.spec.Size))
	}
	return nil
}

// dial begins to open a connection; the kernel opens it while the client goes on.
func (c *httpClient) dial(x *httpConn) error {
	fd, errno := rawSocket(c.target.Addr(), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if errno != 0 {
		return fmt.Errorf("open a socket: %w", errno)
	}
	x.fd, x.blocked = fd, false
	c.conns[fd] = x
	if err := setNoDelay(fd); err != nil {
		return err
	}
	if errno := rawConnect(fd, c.address); errno != 0 && errno != unix.EINPROGRESS {
		return failed("connect", c.target, errno)
	}
	return c.poll.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN)
}

// run drives the connections until the run is quiet and every request has its
// answer.
func (c *httpClient) run(i int) error {
	if c.pace = c.j.newPace(c.t, c.j.spec.Rate, i, c.j.spec.threads(), 0); c.pace != nil {
		// A client on another machine would not wait for the gateway's CPUs.
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, highest)
		defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) }()
	}
	if err := c.begin(); err != nil {
		return err
	}
	for !c.j.quiet.Load() || c.open > 0 {
		due, err := c.sendDue()
		if err != nil {
			return err
		}
		if err := c.events(min(tick, due)); err != nil {
			c.t.errors.Add(1)
			if c.j.phase.Load() == phaseWindow {
				c.t.failed++
			}
			return err
		}
	}
	if len(c.waiting) > len(c.conns) {
		return fmt.Errorf("the path does not carry the rate: %d requests were waiting at the end", len(c.waiting))
	}
	return nil
}

// begin makes every kept connection send, or wait for a request that is due. Idle
// connections do neither.
func (c *httpClient) begin() error {
	c.running = c.j.spec.Workload != HTTPIdle
	for _, x := range c.conns {
		if x.step != stepIdle {
			continue
		}
		if err := c.next(x); err != nil {
			return err
		}
	}
	return nil
}

// sendDue sends the requests that are due, and returns how long until the next is.
// Without a rate, none is ever due.
func (c *httpClient) sendDue() (time.Duration, error) {
	for c.pace != nil && !c.j.quiet.Load() {
		now := c.j.clock.now()
		if c.pace.next > now {
			return time.Duration(c.pace.next - now), nil
		}
		c.waiting = append(c.waiting, c.pace.take())
		if err := c.sendWaiting(); err != nil {
			return 0, err
		}
	}
	return tick, nil
}

// sendWaiting sends waiting requests on connections that are free.
func (c *httpClient) sendWaiting() error {
	for len(c.waiting) > 0 && len(c.idle) > 0 {
		x := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		intended := c.waiting[0]
		c.waiting = c.waiting[1:]
		if c.j.phase.Load() == phaseWindow {
			note(c.t.lateness, c.j.clock.now()-max(intended, x.freed))
		}
		if err := c.send(x, intended); err != nil {
			return err
		}
	}
	return nil
}

// send begins a request.
func (c *httpClient) send(x *httpConn, intended int64) error {
	x.out, x.intended, x.sent = c.request, intended, c.j.clock.now()
	x.since, x.in = x.sent, x.in[:0]
	if c.j.spec.Workload == HTTPUp {
		x.body = c.j.spec.Size
	}
	c.open++
	return c.flush(x)
}

// flush sends what the socket takes of a request.
func (c *httpClient) flush(x *httpConn) error {
	for len(x.out) > 0 || x.body > 0 {
		b, flags := x.out, 0
		if len(b) == 0 {
			b = c.scratch[:min(x.body, chunk)]
		} else if x.body > 0 {
			flags = unix.MSG_MORE
		}
		n, errno := rawSend(x.fd, b, flags|unix.MSG_NOSIGNAL)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			x.step, x.blocked = stepOpen, true
			return c.poll.set(unix.EPOLL_CTL_MOD, x.fd, unix.EPOLLIN|unix.EPOLLOUT)
		case errno != 0:
			return failed("send to", c.target, errno)
		case len(x.out) > 0:
			x.out = x.out[n:]
		default:
			x.body -= n
			x.since = c.j.clock.now()
			c.t.sentBytes.Add(uint64(n))
		}
	}
	x.step = stepHead
	if c.echo != nil {
		x.step = stepFrame
	}
	if x.blocked {
		x.blocked = false
		return c.poll.set(unix.EPOLL_CTL_MOD, x.fd, unix.EPOLLIN)
	}
	return nil
}

// events handles what comes within a duration.
func (c *httpClient) events(d time.Duration) error {
	for _, e := range c.poll.wait(d) {
		x := c.conns[int(e.Fd)]
		if x == nil {
			continue
		}
		var err error
		if x.step == stepOpen && e.Events&unix.EPOLLIN == 0 {
			err = c.flush(x)
		} else {
			err = c.receive(x)
		}
		if err == nil {
			_, err = c.sendDue()
		}
		if err != nil {
			return err
		}
	}
	return c.patience()
}

// patience returns an error if a request has made no progress for too long.
func (c *httpClient) patience() error {
	now := c.j.clock.now()
	if now < c.checked+int64(tick) {
		return nil
	}
	c.checked = now
	for _, x := range c.conns {
		if x.step != stepIdle && now-x.since > int64(patience) {
			return silent(c.target)
		}
	}
	return nil
}

// close resets the connections that are left. If the client sent a FIN first, each
// would keep its source port in TIME_WAIT for a minute, and the next runs with many
// connections would find no free port.
func (c *httpClient) close() {
	for fd := range c.conns {
		_ = resetOnClose(fd) // without it, the connection ends with a FIN
		rawClose(fd)
	}
	c.poll.close()
}
