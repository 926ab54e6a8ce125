package h1

import (
	"context"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/nonblock"

	"golang.org/x/sys/unix"
)

// outcome is why serve has returned.
type outcome int

const (
	mustClose outcome = iota
	takenOver         // a handler has the connection
	isParked
)

// serve serves requests until the connection ends or is parked.
func (c *conn) serve() outcome {
	defer func() { c.ctx.Load().cancel(context.Canceled) }()
	if !c.handshake() {
		return mustClose
	}
	for since := c.since; ; since = c.server.now.Load() {
		err := c.readRequest(since)
		for err == errParks {
			if c.park() {
				return isParked
			}
			err = c.readRequest(c.reading.Load() >> 3)
		}
		if err != nil {
			c.refuse(err)
			return mustClose
		}
		ok := c.handle()
		if c.w.hijacked {
			return takenOver
		}
		if !ok || !c.next() {
			c.Release()
			return mustClose
		}
	}
}

// park takes the connection from its goroutine until it is readable. It returns false if the server
// ends, or if the kernel cannot watch the connection.
func (c *conn) park() bool {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = c.Conn.SetReadDeadline(time.Time{})
	c.Release()
	p := &parked{conn: c.Conn, since: c.reading.Load() >> 3, age: c.age, ended: c.ended}
	if s.draining.Load() || s.parking.open(s) != nil || s.parking.add(p, c.socket) != nil {
		c.stays.Store(true)
		return false
	}
	delete(s.conns, c)
	return true
}

// run serves a connection that was added.
func (s *Server) run(c *conn) {
	end := mustClose
	defer func() { s.settle(c, end) }()
	defer goroutine.Recover("serve a connection")
	end = c.serve()
}

// settle ends a connection unless another one has it.
func (s *Server) settle(c *conn, end outcome) {
	switch end {
	case isParked:
		return
	case mustClose:
		s.remove(c)
		_ = c.Conn.Close()
	}
	c.ended()
}

// watch resumes connections that are readable, until the server has ended.
func (s *Server) watch(poll *nonblock.Poll) {
	var events [128]unix.EpollEvent
	n := 0
	wait := func(fd uintptr) bool {
		n = nonblock.Events(fd, events[:])
		return n > 0
	}
	for poll.Wait(wait) == nil {
		for _, e := range events[:n] {
			s.wake(e.Fd)
		}
	}
}

// wake resumes the connection with the descriptor.
func (s *Server) wake(fd int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parking.take(fd); p != nil {
		s.resume(p)
	}
}

// resume serves a connection that was parked. The caller holds the server's mutex.
func (s *Server) resume(p *parked) {
	defer goroutine.Recover("resume a parked connection", func() { _ = p.conn.Close() }, p.ended)
	c := newConn(s, p.conn)
	c.ended, c.since, c.age = p.ended, p.since, p.age
	c.enter(phaseHandler) // until it reads
	s.conns[c] = struct{}{}
	goroutine.Go("serve a parked connection", func() { s.run(c) })
}

// resumeExpired resumes the connections that have waited for too long; the next inspection closes them.
// The caller holds the mutex.
func (s *Server) resumeExpired() {
	if s.IdleTimeout == 0 {
		return
	}
	for fd, p := range s.parking.conns {
		if s.now.Load()-p.since > seconds(s.IdleTimeout) {
			s.resume(s.parking.take(fd))
		}
	}
}

// resumeAll resumes all connections and ends watch. The caller holds the mutex.
func (s *Server) resumeAll() {
	for fd := range s.parking.conns {
		s.resume(s.parking.take(fd))
	}
	if s.parking.poll != nil {
		_ = s.parking.poll.Close()
	}
}

// open makes the descriptor that waits, and the goroutine that resumes connections.
func (l *parking) open(s *Server) error {
	if l.poll != nil {
		return nil
	}
	poll, err := nonblock.NewPoll("parked connections")
	if err != nil {
		return err
	}
	l.poll, l.conns = poll, map[int32]*parked{}
	goroutine.Go("watch parked connections", func() { s.watch(poll) })
	return nil
}
