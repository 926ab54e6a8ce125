package h1

import (
	"runtime/debug"
	"syscall"
	"time"

	"fairlead/internal/gateway/goroutine"
)

// parkAfter is how many seconds a connection waits for a request before it is parked. A client that
// sends a request per second does not pay for it.
const parkAfter = 2

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
