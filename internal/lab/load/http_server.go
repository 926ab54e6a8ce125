package load

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// httpServer serves the connections that one thread accepts. All answers of a run
// have the same head and size.
type httpServer struct {
	j        *job
	t        *thread
	poll     *poller
	listener int
	conns    map[int]*servedConn
	free     []*servedConn // ended ones, whose memory the next ones use
	// start is the first part of an answer, rest the size of what follows, of which
	// body is a part.
	start   []byte
	rest    int
	body    []byte
	scratch []byte
}

// servedConn is one of the server's connections.
type servedConn struct {
	fd int
	// in is what has been received of requests; left is what is still to come of the
	// body of one.
	in   []byte
	left int64
	// out and rest are what is still to be sent of an answer. blocked: the socket has
	// no room for it. frame is the memory of WebSocket frames.
	out     []byte
	rest    int
	blocked bool
	frame   []byte
	// last: the client wants no further answer. framed: it sends WebSocket frames.
	last, framed bool
}

// serveHTTP starts the threads of the HTTP server.
func (j *job) serveHTTP(l *listener) {
	j.sources = map[netip.Addr]bool{}
	if err := unix.SetNonblock(l.tcp, true); err != nil {
		j.fail(fmt.Errorf("serve HTTP: %w", err))
		return
	}
	for range j.spec.threads() {
		j.receive(func(t *thread) error {
			s := &httpServer{j: j, t: t, listener: l.tcp, conns: map[int]*servedConn{}, scratch: make([]byte, chunk)}
			s.start, s.rest = j.spec.answer()
			s.body = pattern(min(s.rest, chunk))
			if s.rest <= chunk {
				s.start, s.rest = append(s.start, s.body...), 0
			}
			return s.run()
		})
	}
}

// run accepts and serves connections until the run is over.
func (s *httpServer) run() (err error) {
	if s.poll, err = newPoller(); err != nil {
		return err
	}
	defer s.close()
	if err := s.poll.set(unix.EPOLL_CTL_ADD, s.listener, unix.EPOLLIN|unix.EPOLLEXCLUSIVE); err != nil {
		return err
	}
	for !s.j.done.Load() {
		for _, e := range s.poll.wait(tick) {
			fd := int(e.Fd)
			if fd == s.listener {
				if err := s.accept(); err != nil {
					return err
				}
				continue
			}
			x := s.conns[fd]
			if x == nil {
				continue
			}
			if err := s.serve(x); err != nil {
				s.end(x)
				if !errors.Is(err, errHungUp) {
					s.t.errors.Add(1)
				}
			}
		}
	}
	return nil
}

// accept takes every connection that is there. The listener is non-blocking.
func (s *httpServer) accept() error {
	for {
		fd, sa, err := unix.Accept4(s.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
		case unix.EAGAIN:
			return nil
		case unix.EINTR, unix.ECONNABORTED:
			continue
		default:
			return fmt.Errorf("accept: %w", err)
		}
		s.j.met(addrPort(sa).Addr())
		if err := setNoDelay(fd); err != nil {
			return err
		}
		s.conns[fd] = s.newConn(fd)
		if err := s.poll.set(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
}

// newConn returns the state of a new connection.
func (s *httpServer) newConn(fd int) *servedConn {
	if len(s.free) == 0 {
		return &servedConn{fd: fd, in: make([]byte, 0, maxHead)}
	}
	x := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	*x = servedConn{fd: fd, in: x.in[:0], frame: x.frame}
	return x
}

// met remembers a client's address.
func (j *job) met(client netip.Addr) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.sources[client.Unmap()] = true
}

// errHungUp means that a client has ended its connection.
var errHungUp = errors.New("the client has ended the connection")

// serve handles what has come on a connection: requests, or room for an answer.
func (s *httpServer) serve(x *servedConn) error {
	if x.blocked {
		if err := s.flush(x); err != nil || x.blocked {
			return err
		}
	} else if err := s.receive(x); err != nil {
		return err
	}
	for !x.blocked {
		took, err := s.request(x)
		if err != nil || !took {
			return err
		}
		if err := s.flush(x); err != nil {
			return err
		}
	}
	return nil
}

// receive reads the next part of a request.
func (s *httpServer) receive(x *servedConn) error {
	room := x.in[len(x.in):cap(x.in)]
	if x.left > 0 {
		room = s.scratch[:min(int64(len(s.scratch)), x.left)]
	}
	n, errno := rawRead(x.fd, room)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return nil
	case errno == unix.ECONNRESET || errno == 0 && n == 0:
		return errHungUp
	case errno != 0:
		return fmt.Errorf("receive: %w", errno)
	case x.left > 0:
		s.count(x, int64(n))
	default:
		x.in = x.in[:len(x.in)+n]
	}
	return nil
}

// count counts n bytes of a request's body, and adds its answer after the last.
func (s *httpServer) count(x *servedConn, n int64) {
	s.t.receivedBytes.Add(uint64(n))
	if x.left -= n; x.left == 0 {
		s.answer(x)
	}
}

// request takes the next request from what has been received; it reports false if
// there is none that is complete.
func (s *httpServer) request(x *servedConn) (took bool, err error) {
	switch {
	case len(x.out) > 0:
		return true, nil // the answer to a body
	case x.left > 0 || len(x.in) == 0:
		return false, nil
	case x.framed:
		return s.echo(x)
	}
	m, ok, err := parseMessage(x.in)
	if err != nil || !ok {
		return false, err
	}
	if m.key != nil {
		x.framed, x.out = true, upgrade(m.key)
		s.t.transactions.Add(1)
		s.drop(x, m.size)
		return true, nil
	}
	x.last = m.last
	body := min(max(m.length, 0), int64(len(x.in)-m.size))
	if x.left = max(m.length, 0); x.left == 0 {
		s.answer(x)
	}
	s.drop(x, m.size+int(body))
	if body > 0 {
		s.count(x, body)
	}
	return len(x.out) > 0, nil
}

// answer adds an answer to what is to be sent.
func (s *httpServer) answer(x *servedConn) {
	x.out, x.rest = s.start, s.rest
	if s.rest == 0 {
		s.t.sentBytes.Add(uint64(len(s.body)))
	}
	s.t.transactions.Add(1)
}

// echo sends a WebSocket frame back.
func (s *httpServer) echo(x *servedConn) (took bool, err error) {
	frame, size, err := unmask(x.in)
	if err != nil || size == 0 {
		return false, err
	}
	x.frame = append(x.frame[:0], frame...)
	x.out = x.frame
	s.drop(x, size)
	s.t.receivedBytes.Add(uint64(len(frame) - 2))
	s.t.sentBytes.Add(uint64(len(frame) - 2))
	s.t.transactions.Add(1)
	return true, nil
}

// drop removes the first bytes of what has been received.
func (s *httpServer) drop(x *servedConn, n int) { x.in = x.in[:copy(x.in, x.in[n:])] }

// flush sends what the socket takes of an answer.
func (s *httpServer) flush(x *servedConn) error {
	for len(x.out) > 0 || x.rest > 0 {
		b, flags := x.out, 0
		if len(b) == 0 {
			b = s.body[:min(x.rest, len(s.body))]
		} else if x.rest > 0 {
			flags = unix.MSG_MORE
		}
		n, errno := rawSend(x.fd, b, flags|unix.MSG_NOSIGNAL)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return s.block(x, true)
		case errno != 0:
			return errHungUp
		case len(x.out) > 0:
			x.out = x.out[n:]
		default:
			x.rest -= n
			s.t.sentBytes.Add(uint64(n))
		}
	}
	if x.last {
		return errHungUp
	}
	return s.block(x, false)
}

// block waits for room if there is none, and otherwise for requests.
func (s *httpServer) block(x *servedConn, blocked bool) error {
	if x.blocked == blocked {
		return nil
	}
	x.blocked = blocked
	events := uint32(unix.EPOLLIN)
	if blocked {
		events = unix.EPOLLOUT
	}
	return s.poll.set(unix.EPOLL_CTL_MOD, x.fd, events)
}

// end closes a connection.
func (s *httpServer) end(x *servedConn) {
	rawClose(x.fd)
	delete(s.conns, x.fd)
	s.free = append(s.free, x)
}

func (s *httpServer) close() {
	for fd := range s.conns {
		rawClose(fd)
	}
	s.poll.close()
	_ = unix.SetNonblock(s.listener, false) // it was set before
}
