package admin

import (
	"io"
	"net"
	"sync"

	"fairlead/internal/unixsock"

	"golang.org/x/sys/unix"
)

// Limits of simultaneous connections. Together with maxBody, maxLarge and maxHeader
// they limit the memory that callers can use.
const (
	// MaxConns is the limit for all callers. More connections wait in the socket's
	// queue.
	MaxConns = 128
	// ConnsPerPeer is the limit for one process of root, or for one user without
	// privileges. It keeps a caller with unfinished requests from blocking others.
	ConnsPerPeer = 64
	// maxFollowers and followersPerPeer are the limits for connections that follow
	// events. These do not count towards the other limits.
	maxFollowers, followersPerPeer = 128, 64
)

const tooMany = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n" +
	`{"code":"failed","message":"too many connections of this process: close some first"}` + "\n"

// caller is the unit of the limits per peer: one process of root or of the daemon's
// user, or all processes of another user.
type caller struct{ uid, pid int }

func callerOf(cred unix.Ucred, privileged bool) caller {
	if privileged {
		return caller{int(cred.Uid), int(cred.Pid)}
	}
	return caller{uid: int(cred.Uid)}
}

// quota limits the connections of all callers and of each caller. It is safe for
// concurrent use.
type quota struct {
	mu             sync.Mutex
	total, perPeer int
	sum            int
	have           map[caller]int
}

func newQuota(total, perPeer int) *quota {
	return &quota{total: total, perPeer: perPeer, have: map[caller]int{}}
}

// take reports whether the caller may have one more connection. give returns it to
// the quota; it may be called more than once.
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

// bounded is a listener with a limit of open connections.
type bounded struct {
	*net.UnixListener
	slots     chan struct{}
	conns     *quota
	followers *quota
	// ended is closed by Close and ends Accept.
	ended chan struct{}
	once  sync.Once
}

// bound limits a listener to n connections, and a caller to perPeer of them.
func bound(l *net.UnixListener, n, perPeer int) *bounded {
	return &bounded{UnixListener: l, slots: make(chan struct{}, n), ended: make(chan struct{}),
		conns: newQuota(n, perPeer), followers: newQuota(maxFollowers, followersPerPeer)}
}

// Accept waits for a free slot, and then for a connection of a caller that is below
// its limit. It answers other connections with status 503 and closes them.
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
		who, err := unixsock.PeerOf(conn)
		by := callerOf(who.Ucred, err == nil && who.Trusted())
		give, ok := b.conns.take(by)
		if ok {
			free := sync.OnceFunc(func() { give(); <-b.slots })
			return &slotted{UnixConn: conn, by: by, free: free, followers: b.followers}, nil
		}
		_, _ = io.WriteString(conn, tooMany) // the text fits into the socket's buffer
		conn.Close()
	}
}

// Close closes the listener and ends Accept.
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

// follow frees the slot and counts the connection as a follower until done is
// called. ok is false if there are too many followers.
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
