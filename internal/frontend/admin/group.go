package admin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// ListenFor creates a unix socket that its owner and a group can use; an empty group means only the owner. Close
// removes the file.
func ListenFor(path, group string) (net.Listener, error) {
	gid := -1
	if group != "" {
		var err error
		if gid, err = groupID(group); err != nil {
			return nil, fmt.Errorf("listen on unix:%s: %w", path, err)
		}
	}
	var l *net.UnixListener
	err := asGroup(gid, func() (err error) {
		l, err = Listen(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	if gid >= 0 {
		if err := os.Chmod(path, 0o660); err != nil {
			return nil, errors.Join(fmt.Errorf("listen on unix:%s: give access to group %s: %w", path, group, err),
				l.Close())
		}
	}
	return socket{l, path}, nil
}

// asGroup calls a function on a thread whose new files belong to a group, unless gid is negative. So the caller
// needs CAP_SETGID, which the unit has, and not CAP_CHOWN.
func asGroup(gid int, create func() error) error {
	if gid < 0 {
		return create()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // The thread ends with the goroutine.
		const keep = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(gid), keep); errno != 0 {
			done <- fmt.Errorf("give access to group %d: %w", gid, errno)
			return
		}
		done <- create()
	}()
	return <-done
}

// socket is a unix socket whose file is removed when it is closed.
type socket struct {
	net.Listener
	path string
}

// Close implements net.Listener.
func (s socket) Close() error {
	if err := s.Listener.Close(); err != nil {
		return err
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func groupID(name string) (int, error) {
	if id, err := strconv.Atoi(name); err == nil && id >= 0 {
		return id, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("there is no group %q: %w", name, err)
	}
	return strconv.Atoi(g.Gid)
}
