package service

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The names of sockets that a service manager hands over (FileDescriptorName=
// of systemd.socket(5)).
const (
	adminSocket  = "admin"
	dockerSocket = "docker"
)

// inheritedFirst is the first descriptor that is handed over (sd_listen_fds(3)).
const inheritedFirst = 3

// Sockets are those that a service manager listens on for the daemon, by their
// names, so that nobody's call is refused while there is none.
type Sockets map[string]*net.UnixListener

// Inherited takes the sockets that the service manager hands over, none where it
// does not. What it says of them in the environment is not for our children.
func Inherited() (Sockets, error) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, fmt.Errorf("take sockets: %w", err)
		}
	}
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	named := strings.Split(names, ":")
	if err != nil || n < 0 || n != len(named) {
		return nil, fmt.Errorf("take sockets: %q of them with the names %q: want a name of each: FileDescriptorName= in the socket unit", count, names)
	}
	sockets := Sockets{}
	var errs []error
	for i, name := range named {
		l, err := inherited(inheritedFirst+i, name)
		if err == nil && sockets[name] != nil {
			err = errors.New("there are two of that name")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("take socket %q: %w", name, err))
			continue
		}
		sockets[name] = l
	}
	return sockets, errors.Join(errs...)
}

// inherited makes a listener of a descriptor.
func inherited(fd int, name string) (*net.UnixListener, error) {
	unix.CloseOnExec(fd) // the proxy must not hold it
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if name != adminSocket && name != dockerSocket {
		return nil, fmt.Errorf("there is no such name: FileDescriptorName= is %s or %s", adminSocket, dockerSocket)
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

// take returns the socket of that name, or one that is made at the path.
// Done removes the path; the service manager's is its own.
func (s Sockets) take(name, path string, listen func(string) (*net.UnixListener, error)) (l *net.UnixListener, done func(), err error) {
	if l := s[name]; l != nil {
		return l, func() {}, nil
	}
	l, err = listen(path)
	return l, func() { _ = os.Remove(path) }, err
}
