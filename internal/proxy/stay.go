package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// fresh is what a socket's name ends in until it is to be found.
	fresh = ".new"
	// drainCheck is how often one that has left looks whether its last
	// connection has ended.
	drainCheck = time.Second
	// curtailLimit bounds what a predecessor that does not answer can cost.
	curtailLimit = time.Second
)

// stay is what a proxy that outlives its parents has besides.
type stay struct {
	listener *net.UnixListener
	// before is the predecessor, as long as it has connections.
	before *Proxy
	// left says that a successor has our sockets.
	left bool
	// empty is since when it holds nothing; zero while it holds something.
	empty time.Time
	// rest looks again whether it is to end.
	rest *time.Timer
}

// outlive makes the proxy go on without its parent, found at a socket by the
// next one.
func (s *server) outlive(k keep) error {
	if s.stay != nil {
		return errors.New("the proxy outlives its parents already")
	}
	// In a session of its own it gets none of a terminal's signals; signals
	// that a user sends to a whole process group must not end it either.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT)
	next := k.Socket + fresh
	l, err := listenControl(next)
	if err != nil {
		return err
	}
	st := &stay{listener: l}
	if k.TakeOver {
		st.before, err = s.ports.takeOver(k.Socket)
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
	s.rest()
	return nil
}

// listenControl listens on a socket that is ours alone.
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
		if who, err := peerOf(conn); err != nil || !who.trusted() {
			conn.Close()
			continue
		}
		s.mu.Lock()
		s.parents++
		s.mu.Unlock()
		go s.attend(conn)
	}
}

// rest ends a proxy that holds nothing: at once if no parent is there, else
// if nothing is wanted of it for a while. One that has left holds its
// connections.
func (s *server) rest() {
	st := s.stay
	switch {
	case st.left:
		if total(s.workers).Connections == 0 {
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

// leave gives up what the successor has copies of. Connections go on; a UDP
// flow begins anew with the successor.
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

// curtail ends the connections of a proxy that has left but those of the
// listeners that there are still.
func (s *server) curtail(cfg Config) error {
	if s.stay == nil || !s.stay.left {
		return errors.New("the proxy has no successor")
	}
	s.ports.curtail(cfg)
	s.stay.curtailBefore(cfg)
	s.rest()
	return nil
}

// curtailBefore makes the predecessor end the connections of all listeners that
// are not in cfg.
func (st *stay) curtailBefore(cfg Config) {
	if st.before == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), curtailLimit)
	defer cancel()
	if _, err := st.before.call(ctx, request{Curtail: &cfg}); err != nil {
		_ = st.before.Part() // it has ended
		st.before = nil
	}
}

// credentials are who is at the other end of a control socket.
type credentials struct{ unix.Ucred }

// trusted says that the process is root's or our own user's.
func (c credentials) trusted() bool { return c.Uid == 0 || int(c.Uid) == os.Geteuid() }

// peerOf asks the kernel who is at the other end; of a listener's end that is
// who listens.
func peerOf(conn syscall.Conn) (credentials, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return credentials{}, err
	}
	var cred *unix.Ucred
	failed := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(failed, err); err != nil {
		return credentials{}, fmt.Errorf("ask who is at the other end: %w", err)
	}
	return credentials{*cred}, nil
}
