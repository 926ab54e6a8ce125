package datagram

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
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

// Start forwards datagrams until Leave or Close. It calls failed if that is impossible.
func (e *Entry) Start(failed func(error)) {
	if err := wantLocal(e.conn); err != nil {
		failed(err)
		return
	}
	_ = e.conn.SetReadBuffer(1 << 20) // the kernel may limit it further
	e.running.Go("end silent sessions", e.expire)
	e.running.Go("forward the datagrams of clients", e.read)
}

// read forwards the clients' datagrams.
func (e *Entry) read() {
	buffer, control := make([]byte, largest), make([]byte, controlRoom)
	for {
		n, c, _, from, err := e.conn.ReadMsgUDPAddrPort(buffer, control)
		switch {
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil:
			continue // an ICMP error for an earlier datagram
		}
		e.forward(buffer[:n], control[:c], from)
	}
}

// forward forwards a client's datagram. A mistake ends the client's session only.
func (e *Entry) forward(b, control []byte, from netip.AddrPort) {
	k := key{from, parseLocal(control)}
	defer goroutine.Recover("forward a client's datagram", func() { e.forget(k) })
	if s := e.session(k); s != nil {
		s.forward(b)
	}
}

// forget ends the client's session if there is one.
func (e *Entry) forget(k key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[k]; s != nil {
		e.drop(s)
	}
}

// session returns the client's session: a new one if there is none, nil if there is no server or
// the client is an entry point.
func (e *Entry) session(k key) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[k]; s != nil {
		return s
	}
	r := e.route()
	if r == nil || e.closed || e.own.has(k.client) {
		return nil
	}
	to := r.service.next()
	if to == nil {
		return nil
	}
	if len(e.sessions) >= e.most {
		e.evict()
	}
	s, err := newSession(e, k, to)
	if err != nil {
		return nil
	}
	s.place = e.unanswered.PushBack(s)
	s.used.Store(time.Now().UnixNano())
	e.sessions[k] = s
	e.count.Inc()
	e.changed(1)
	e.running.Go("forward the datagrams of a server", s.answer)
	return s
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
