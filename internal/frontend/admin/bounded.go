package admin

import (
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// The numbers of connections that are served at once. With maxBody and maxHeader
// they bound the memory that callers can take.
const (
	// MaxConns is for all callers. Others wait in the socket's queue.
	MaxConns = 128
	// ConnsPerPeer is for one process, or one user without privileges: a caller
	// that leaves requests unfinished does not keep others out.
	ConnsPerPeer = 64
	// maxFollowers and followersPerPeer are for those who follow events. They
	// do not count as connections.
	maxFollowers, followersPerPeer = 128, 64
)

const tooMany = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n" +
	`{"code":"failed","message":"too many connections of this process: close some first"}` + "\n"

// caller is who a limit per peer counts: a process of root's or of the daemon's
// user, or all processes of another user.
type caller struct{ uid, pid int }

func callerOf(cred unix.Ucred, privileged bool) caller {
	if privileged {
		return caller{int(cred.Uid), int(cred.Pid)}
	}
	return caller{uid: int(cred.Uid)}
}

// quota counts what callers have. It is safe for concurrent use.
type quota struct {
	mu             sync.Mutex
	total, perPeer int
	sum            int
	have           map[caller]int
}

func newQuota(total, perPeer int) *quota {
	return &quota{total: total, perPeer: perPeer, have: map[caller]int{}}
}

// take reports whether the caller may have one more. give, which may be called
// more than once, gives it back.
func (q *quota) take(by caller) (give func(), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sum >= q.total || q.have[by] >= q.perPeer {
		return nil, false
	}
	q.sum++
	q.have[by]++
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.sum--
		if q.have[by]--; q.have[by] == 0 {
			delete(q.have, by)
		}
	}), true
}

// bounded is a listener that has so many connections open at once.
type bounded struct {
	*net.UnixListener
	slots     chan struct{}
	conns     *quota
	followers *quota
	// ended ends who waits for a slot.
	ended chan struct{}
	once  sync.Once
}

// bound limits a listener to n connections, and a caller to perPeer of them.
func bound(l *net.UnixListener, n, perPeer int) *bounded {
	return &bounded{UnixListener: l, slots: make(chan struct{}, n), ended: make(chan struct{}),
		conns: newQuota(n, perPeer), followers: newQuota(maxFollowers, followersPerPeer)}
}

// Accept waits until there is a slot, then for the next connection of a caller
// that has not too many.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.ended:
		return nil, net.ErrClosed
	}
	for {
		conn, err := b.AcceptUnix()
		if err != nil {
			<-b.slots
			return nil, err
		}
		cred, known := credentials(conn)
		by := callerOf(cred, known && privileged(cred))
		give, ok := b.conns.take(by)
		if ok {
			free := sync.OnceFunc(func() { give(); <-b.slots })
			return &slotted{UnixConn: conn, by: by, free: free, followers: b.followers}, nil
		}
		_, _ = io.WriteString(conn, tooMany) // it fits the socket's buffer
		conn.Close()
	}
}

// Close ends Accept.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.ended) })
	return b.UnixListener.Close()
}

// slotted is a connection that frees its slot when it is closed.
type slotted struct {
	*net.UnixConn
	by        caller
	free      func()
	followers *quota
}

// follow gives the slot back and counts the connection as a follower's until done
// is called.
func (c *slotted) follow() (done func(), ok bool) {
	done, ok = c.followers.take(c.by)
	if ok {
		c.free()
	}
	return done, ok
}

func (c *slotted) Close() error {
	defer c.free()
	return c.UnixConn.Close()
}
