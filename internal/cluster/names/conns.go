package names

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// The limits of open TCP connections at an address: of all clients, and of each.
const (
	maxConns          = 256
	maxConnsPerClient = 32
)

// fairListener limits the open connections, so that a client with many questions that it does not complete keeps no
// other client from asking. If a client has too many connections, a new one ends the oldest one of that client. If all
// clients together have too many, a new one ends the oldest one of the client that has the most.
type fairListener struct {
	net.Listener
	// accepts reports whether a client may ask at all.
	accepts func(netip.Addr) bool

	mu   sync.Mutex
	all  int
	open map[netip.Addr][]*countedConn // the oldest first
}

func newFairListener(l net.Listener, accepts func(netip.Addr) bool) *fairListener {
	return &fairListener{Listener: l, accepts: accepts, open: map[netip.Addr][]*countedConn{}}
}

// Accept returns the next connection of a client that may ask.
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := clientOf(conn.RemoteAddr())
		if !l.accepts(client) {
			conn.Close()
			continue
		}
		c := &countedConn{Conn: conn, by: l, client: client}
		if ended := l.enter(c); ended != nil {
			ended.Close()
		}
		return c, nil
	}
}

// enter counts a connection, and returns the one that must end for it, or nil.
func (l *fairListener) enter(c *countedConn) (ended *countedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := c.client
	if full := len(l.open[from]) >= maxConnsPerClient; full || l.all >= maxConns {
		if !full {
			from = l.most()
		}
		ended = l.open[from][0]
		l.remove(ended)
	}
	l.all++
	l.open[c.client] = append(l.open[c.client], c)
	return ended
}

// most returns the client that has the most connections. The caller holds the lock.
func (l *fairListener) most() (client netip.Addr) {
	for other, open := range l.open {
		if len(open) > len(l.open[client]) {
			client = other
		}
	}
	return client
}

// remove counts a connection no longer. It may be called more than once. The caller holds the lock.
func (l *fairListener) remove(c *countedConn) {
	i := slices.Index(l.open[c.client], c)
	if i < 0 {
		return
	}
	l.all--
	l.open[c.client] = slices.Delete(l.open[c.client], i, i+1)
	if len(l.open[c.client]) == 0 {
		delete(l.open, c.client)
	}
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	by     *fairListener
	client netip.Addr
}

// Close closes the connection.
func (c *countedConn) Close() error {
	c.by.mu.Lock()
	c.by.remove(c)
	c.by.mu.Unlock()
	return c.Conn.Close()
}

// clientOf returns the address of a client; the zero value if it is not one of TCP or UDP.
func clientOf(a net.Addr) netip.Addr {
	at, _ := netip.ParseAddrPort(a.String())
	return at.Addr().Unmap()
}
