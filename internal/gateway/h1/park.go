package h1

import (
	"net"
	"runtime/debug"
	"syscall"
	"time"

	"fairlead/internal/gateway/goroutine"
	"fairlead/internal/gateway/nonblock"

	"golang.org/x/sys/unix"
)

// parkAfter is how many seconds a connection waits for a request before it is parked. A client that
// sends a request per second does not pay for it.
const parkAfter = 2

// parked is a connection without a goroutine: it waits for its next request in the parking lot.
type parked struct {
	conn net.Conn
	// since is the second in which the connection began to wait.
	since int64
	age   age
	ended func()
}

// parking is the set of the parked connections of a server. The server's mutex protects it.
type parking struct {
	// poll waits for all of them; it is nil before the first one.
	poll  *nonblock.Poll
	conns map[int32]*parked
	// unfreed counts the goroutines that have ended since memory was freed; freeAt is when it may be
	// freed again.
	unfreed int
	freeAt  time.Time
}

// askToPark interrupts the read of a connection that waits for a request, so that its goroutine parks
// it. The caller holds the server's mutex.
func (c *conn) askToPark(reading int64) {
	if c.socket != nil && !c.stays.Load() && c.reading.CompareAndSwap(reading, mark(phaseParks, reading>>3)) {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// parks returns true if the read was interrupted so that the connection is parked.
func (c *conn) parks() bool { return c.reading.Load()&7 == phaseParks && c.Buffered() == 0 }

// begun begins the phase in which a head is incomplete. An inspection may have asked meanwhile to park
// the connection.
func (c *conn) begun() {
	r := c.reading.Load()
	if r&7 == phaseIdle && c.reading.CompareAndSwap(r, mark(phaseHead, c.server.now.Load())) {
		return
	}
	if c.reading.Load()&7 == phaseParks {
		c.unpark()
	}
	c.enter(phaseHead)
}

// unpark removes the deadline that askToPark has set.
func (c *conn) unpark() {
	c.server.mu.Lock() // until askToPark has returned
	defer c.server.mu.Unlock()
	_ = c.Conn.SetReadDeadline(time.Time{})
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

// add parks a connection. Its socket is readable at once if its request came meanwhile.
func (l *parking) add(p *parked, socket syscall.RawConn) error {
	var failed error
	err := socket.Control(func(fd uintptr) {
		if failed = l.poll.Add(int32(fd), 0); failed == nil {
			l.conns[int32(fd)] = p
			l.unfreed++
		}
	})
	if err == nil {
		err = failed
	}
	return err
}

// take removes a connection. It returns nil if there is none with the descriptor.
func (l *parking) take(fd int32) *parked {
	p := l.conns[fd]
	if p != nil {
		delete(l.conns, fd)
		l.poll.Remove(fd)
	}
	return p
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

const (
	// freeEvery is how many connections are parked before their memory goes back to the kernel.
	freeEvery = 256
	// freeShare limits the time for this to a part of all time.
	freeShare = 10
)

// free returns the memory of ended goroutines to the kernel. The runtime itself does so minutes later,
// if the connections stay idle. The caller holds the mutex.
func (s *Server) free() {
	l := &s.parking
	if l.unfreed < freeEvery || time.Now().Before(l.freeAt) {
		return
	}
	l.unfreed, l.freeAt = 0, time.Now().Add(time.Hour)
	goroutine.Go("free memory", func() {
		begun := time.Now()
		debug.FreeOSMemory()
		s.mu.Lock()
		l.freeAt = time.Now().Add(freeShare * time.Since(begun))
		s.mu.Unlock()
	})
}
