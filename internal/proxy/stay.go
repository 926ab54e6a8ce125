package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"time"

	"fairlead/internal/unixsock"

	"golang.org/x/sys/unix"
)

const (
	// newSuffix is the suffix of a new socket's name until it replaces the old one.
	newSuffix = ".new"
	// drainCheck is how often a proxy with a successor checks whether its last
	// connection has ended.
	drainCheck = time.Second
	// curtailLimit limits the wait for a predecessor that does not answer. It gets the
	// request all the same.
	curtailLimit = time.Second
)

// stay is the additional state of a kept proxy.
type stay struct {
	listener *net.UnixListener
	// before is the predecessor while it has connections, else nil.
	before *predecessor
	// left is true after a successor has taken over the sockets.
	left bool
	// empty is the time since when the proxy has no sockets; zero while it has
	// some.
	empty time.Time
	// rest calls server.rest again later.
	rest *time.Timer
}

// outlive makes the proxy continue without its parent. The next parent finds it
// at the socket.
func (s *server) outlive(k keep) error {
	if s.stay != nil {
		return errors.New("the proxy outlives its parents already")
	}
	// The proxy runs in a separate session and gets no signals of a terminal.
	// Signals that a user sends to a whole process group must not end it either.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
	next := k.Socket + newSuffix
	l, err := listenControl(next)
	if err != nil {
		return err
	}
	st := &stay{listener: l}
	if k.TakeOver {
		var p *Proxy
		if p, err = s.ports.takeOver(k.Socket); p != nil {
			st.before = &predecessor{proxy: p}
		}
	}
	if err == nil {
		err = os.Rename(next, k.Socket)
	}
	if err != nil {
		return errors.Join(err, l.Close(), os.Remove(next))
	}
	st.rest = time.AfterFunc(s.limits.empty, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rest()
	})
	s.stay = st
	go s.admit(l)
	if st.before != nil {
		go s.outliveBefore(st.before.proxy)
	}
	s.rest()
	return nil
}

// listenControl listens on a unix socket that only this user (and root) may
// open.
func listenControl(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	// The path is not public yet. The user id of every process that connects is
	// checked all the same.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close(), os.Remove(path))
	}
	return l, nil
}

// admit serves parents until the listener is closed.
func (s *server) admit(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // clients have all descriptors
			time.Sleep(retryAfter)
			continue
		}
		if who, err := unixsock.PeerOf(conn); err != nil || !who.Trusted() {
			conn.Close()
			continue
		}
		s.mu.Lock()
		s.parents++
		s.mu.Unlock()
		go s.attend(conn)
	}
}

// rest ends a kept proxy that has no sockets: at once if it has no parent, else
// after limits.empty. A proxy with a successor ends when neither it nor its predecessor
// has connections.
func (s *server) rest() {
	st := s.stay
	switch {
	case st.before != nil && st.before.pending():
		st.rest.Reset(drainCheck)
	case st.left:
		// A predecessor gets requests from this process only.
		if total(s.workers).Connections == 0 && st.before == nil {
			s.end(nil)
		}
		st.rest.Reset(drainCheck)
	case len(s.ports.sockets) > 0:
		st.empty = time.Time{}
		st.rest.Stop()
	case s.parents == 0:
		s.end(nil)
	default:
		if st.empty.IsZero() {
			st.empty = time.Now()
		}
		wait := s.limits.empty - time.Since(st.empty)
		if wait <= 0 {
			s.end(nil)
			return
		}
		st.rest.Reset(wait)
	}
}

// leave closes the sockets that the successor has copies of. TCP connections
// continue; UDP flows start again in the successor.
func (s *server) leave() error {
	if s.stay == nil {
		return errors.New("the proxy ends with its parent and has no successor")
	}
	s.ports.release()
	s.stay.left = true
	err := s.stay.listener.Close()
	s.rest()
	return err
}

// curtail ends the connections whose listener is not in cfg. The proxy must have
// a successor.
func (s *server) curtail(cfg Config) error {
	if s.stay == nil || !s.stay.left {
		return errors.New("this proxy cannot end connections for a successor: none has its sockets yet")
	}
	s.ports.curtail(cfg)
	s.curtailBefore(cfg)
	s.rest()
	return nil
}

// curtailBefore makes the predecessor end the connections of all listeners that
// are not in cfg.
func (s *server) curtailBefore(cfg Config) {
	if before := s.stay.before; before != nil {
		before.curtail(cfg)
	}
}

// outliveBefore waits for the end of the predecessor.
func (s *server) outliveBefore(p *Proxy) {
	<-p.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = p.Part() // it has ended
	s.stay.before = nil
	s.rest()
}
