package entries

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"fairlead/internal/model/gateway"
)

// Sockets are the open sockets of entry points, by the entry point's name.
type Sockets map[string]Socket

// Socket has the sockets of one entry point. TCP is nil if it accepts datagrams only. UDP
// is nil if it accepts connections only; with HTTP/3, it has both.
type Socket struct {
	TCP *net.TCPListener
	UDP *net.UDPConn
}

// Listen opens the sockets of the entry points. It opens all or none.
func Listen(entries []gateway.EntryPoint) (Sockets, error) {
	all := Sockets{}
	for _, e := range entries {
		s, err := listen(e)
		if all[e.Name] = s; err != nil {
			return nil, errors.Join(fmt.Errorf("entry point %s: %w", e.Name, err), all.Close())
		}
	}
	return all, nil
}

func listen(e gateway.EntryPoint) (s Socket, err error) {
	address, protocol, _ := strings.Cut(e.Address, "/")
	if protocol != "udp" {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return s, err
		}
		s.TCP = l.(*net.TCPListener)
		address = l.Addr().String() // its port, if the address has port 0
	}
	if protocol == "udp" || e.HTTP3 != nil {
		c, err := net.ListenPacket("udp", address)
		if err != nil {
			return s, err
		}
		s.UDP = c.(*net.UDPConn)
	}
	return s, nil
}

// Close closes the sockets.
func (s Sockets) Close() (err error) {
	for _, at := range s {
		if at.TCP != nil {
			err = errors.Join(err, at.TCP.Close())
		}
		if at.UDP != nil {
			err = errors.Join(err, at.UDP.Close())
		}
	}
	return err
}

// accepting is the listener of an entry point while a gateway may leave it to another
// process: leave closes the socket, but Accept returns only after Close, so connections
// that are accepted already are served.
type accepting struct {
	*net.TCPListener
	// open counts the connections from Accept on; who serves one takes it off.
	open *connections
	// closed is closed by Close.
	closed         chan struct{}
	leaves, closes sync.Once
}

func newAccepting(l *net.TCPListener, open *connections) *accepting {
	return &accepting{TCPListener: l, open: open, closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (a *accepting) Accept() (net.Conn, error) {
	c, err := a.TCPListener.AcceptTCP()
	if err == nil {
		a.open.add(1)
		return c, nil
	}
	if errors.Is(err, net.ErrClosed) {
		<-a.closed
	}
	return nil, err
}

// leave closes the socket.
func (a *accepting) leave() (err error) {
	a.leaves.Do(func() { err = a.TCPListener.Close() })
	return err
}

// Close implements net.Listener.
func (a *accepting) Close() error {
	err := a.leave()
	a.closes.Do(func() { close(a.closed) })
	return err
}

// connections counts the open connections of a gateway.
type connections struct {
	mu   sync.Mutex
	open int
	// none is closed while there is no connection; nil until somebody waits.
	none chan struct{}
}

func (c *connections) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open += n; c.open == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// ended returns a channel that is closed when there is no connection.
func (c *connections) ended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if c.none == nil {
		c.none = make(chan struct{})
	}
	return c.none
}
