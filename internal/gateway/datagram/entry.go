package datagram

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"fairlead/internal/gateway/goroutine"
)

// Entry is an entry point that receives datagrams.
type Entry struct {
	conn    *net.UDPConn
	own     Own
	timeout time.Duration
	// most is how many sessions there may be.
	most int
	// route returns the router of the current configuration, nil if there is none.
	route func() *Route
	// count counts the sessions, for metrics; changed reports each new and ended one.
	count   prometheus.Gauge
	changed func(n int)

	mu       sync.Mutex
	sessions map[key]*session
	// unanswered and answered have the sessions, the oldest first.
	unanswered, answered *list.List
	closed               bool
	done                 chan struct{}
	running              goroutine.Group
}

// mostSessions is how many sessions an entry point may have if the process may have enough
// descriptors.
const mostSessions = 8192

// session forwards the datagrams of one client.
type session struct {
	key
	entry  *Entry
	server *Server
	conn   *net.UDPConn
	raw    syscall.RawConn
	// used is when a datagram was forwarded last, in nanoseconds since 1970.
	used     atomic.Int64
	answered atomic.Bool
	// place is that in the entry point's list of unanswered or answered sessions.
	place *list.Element

	// send is passed to raw.Write and sends out; failed is the result. Only the entry point's
	// goroutine uses them.
	send   func(fd uintptr) bool
	out    []byte
	failed error
}

// key identifies a session.
type key struct {
	client netip.AddrPort
	local  local
}

// NewEntry returns an entry point that serves nothing yet. It serves none of the own addresses. A
// session that is silent for the timeout ends. The function changed is called with 1 and -1 when a
// session begins and ends.
func NewEntry(conn *net.UDPConn, own Own, timeout time.Duration, route func() *Route, count prometheus.Gauge,
	changed func(n int)) *Entry {
	return &Entry{conn: conn, own: own, timeout: timeout, route: route, count: count, changed: changed,
		most: sessionLimit(), sessions: map[key]*session{}, unanswered: list.New(), answered: list.New(),
		done: make(chan struct{})}
}

// sessionLimit leaves most descriptors to others.
func sessionLimit() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 256
	}
	return int(max(16, min(mostSessions, r.Cur/8)))
}

// forget ends the client's session if there is one.
func (e *Entry) forget(k key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[k]; s != nil {
		e.drop(s)
	}
}

// evict ends the oldest session, of those without an answer if there are any.
func (e *Entry) evict() {
	oldest := e.unanswered.Front()
	if oldest == nil {
		oldest = e.answered.Front()
	}
	e.drop(oldest.Value.(*session))
}

// promote records that the server has answered.
func (e *Entry) promote(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sessions[s.key] == s && !s.answered.Swap(true) {
		e.unanswered.Remove(s.place)
		s.place = e.answered.PushBack(s)
	}
}

func (e *Entry) end(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop(s)
}

// drop ends a session. The caller has the lock.
func (e *Entry) drop(s *session) {
	if e.sessions[s.key] != s {
		return
	}
	delete(e.sessions, s.key)
	if s.answered.Load() {
		e.answered.Remove(s.place)
	} else {
		e.unanswered.Remove(s.place)
	}
	_ = s.conn.Close() // ends answer
	e.count.Dec()
	e.changed(-1)
}

// expire ends silent sessions.
func (e *Entry) expire() {
	tick := time.NewTicker(max(e.timeout/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-e.done:
			return
		case now := <-tick.C:
			e.expireAt(now)
		}
	}
}

func (e *Entry) expireAt(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer goroutine.Recover("end silent sessions")
	for _, s := range e.sessions {
		if now.UnixNano()-s.used.Load() >= int64(e.timeout) {
			e.drop(s)
		}
	}
}

// Leave stops reading: another process receives the clients' datagrams. Sessions still
// forward those of servers, until they are silent.
func (e *Entry) Leave() { _ = e.conn.SetReadDeadline(time.Unix(1, 0)) } // fails only if it is closed

// Close ends all sessions and closes the socket.
func (e *Entry) Close() {
	e.mu.Lock()
	e.closed = true
	for _, s := range e.sessions {
		e.drop(s)
	}
	e.mu.Unlock()
	close(e.done)
	_ = e.conn.Close()
	e.running.Wait()
}
