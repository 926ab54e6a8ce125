package admin

import (
	"net"
	"sync"
)

// maxConns bounds the connections that are served at once; the others wait in
// the socket's queue. With maxBody and maxHeader it bounds the memory that
// callers can take.
const maxConns = 128

// bounded is a listener that has so many connections open at once.
type bounded struct {
	*net.UnixListener
	slots chan struct{}
	// ended ends who waits for a slot.
	ended chan struct{}
	once  sync.Once
}

func bound(l *net.UnixListener, n int) *bounded {
	return &bounded{UnixListener: l, slots: make(chan struct{}, n), ended: make(chan struct{})}
}

// Accept waits until there is a slot, then for the next connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.ended:
		return nil, net.ErrClosed
	}
	conn, err := b.AcceptUnix()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &slotted{UnixConn: conn, free: sync.OnceFunc(func() { <-b.slots })}, nil
}

// Close ends Accept.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.ended) })
	return b.UnixListener.Close()
}

// slotted is a connection that frees its slot when it is closed.
type slotted struct {
	*net.UnixConn
	free func()
}

func (c *slotted) Close() error {
	defer c.free()
	return c.UnixConn.Close()
}
