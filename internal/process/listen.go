package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The names of sockets that a service manager passes to the daemon
// (FileDescriptorName= of systemd.socket(5)).
const (
	adminSocket  = "admin"
	dockerSocket = "docker"
)

// inheritedFirst is the first file descriptor that is passed (sd_listen_fds(3)).
const inheritedFirst = 3

// Sockets are the sockets on which a service manager listens for the daemon, by name.
// Calls wait in them while no daemon runs.
type Sockets map[string]*net.UnixListener

// Inherited returns the sockets that the service manager passed, or none. It removes
// their environment variables, which child processes must not see.
func Inherited() (Sockets, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, fmt.Errorf("take inherited sockets: %w", err)
		}
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	named := strings.Split(names, ":")
	if err != nil || n < 0 || n != len(named) {
		return nil, fmt.Errorf("take inherited sockets: got LISTEN_FDS=%q and the names %q: want one name per "+
			"socket: set FileDescriptorName= in the socket unit", count, names)
	}
	sockets := Sockets{}
	var errs []error
	for i, name := range named {
		l, err := inherited(inheritedFirst+i, name)
		if err == nil && sockets[name] != nil {
			err = errors.New("two sockets have this name: rename or remove one of them")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("take inherited socket %q: %w", name, err))
			continue
		}
		sockets[name] = l
	}
	return sockets, errors.Join(errs...)
}

// inherited makes a listener from a file descriptor.
func inherited(fd int, name string) (*net.UnixListener, error) {
	unix.CloseOnExec(fd) // the proxy must not inherit it
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if name != adminSocket && name != dockerSocket {
		return nil, fmt.Errorf("unknown name: set FileDescriptorName= to %s or %s", adminSocket, dockerSocket)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok && u.Addr().Network() == "unix" {
		return u, nil
	}
	return nil, errors.Join(fmt.Errorf("it listens on %s: want a unix stream socket", l.Addr()), l.Close())
}

// take returns the passed socket with that name, or a new one at the path. done
// removes the path of a new socket; the service manager removes those that it passed.
func (s Sockets) take(name, path string, listen func(string) (*net.UnixListener, error)) (l *net.UnixListener,
	done func(), err error) {
	if l := s[name]; l != nil {
		return l, func() {}, nil
	}
	l, err = listen(path)
	return l, func() { _ = os.Remove(path) }, err
}
