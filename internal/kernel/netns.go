package kernel

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Netns is an open network namespace. The namespace lives at least as long
// as the file stays open.
type Netns struct {
	file *os.File
	// unprivileged says that it is the process's own namespace, and that the
	// process may not enter any: it stays where it is.
	unprivileged bool
}

// OpenNetns opens the namespace at path, e.g. /run/netns/web or
// /proc/4711/ns/net; the empty path is the caller's own.
func OpenNetns(path string) (*Netns, error) {
	unprivileged := path == "" && os.Geteuid() != 0
	if path == "" {
		path = "/proc/thread-self/ns/net"
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	// What `ip netns del` or a reboot leaves in place of a namespace is a
	// plain file: the namespace does not exist.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		f.Close()
		return nil, fmt.Errorf("open network namespace %s: it is none any more: %w", path, os.ErrNotExist)
	}
	return &Netns{f, unprivileged}, nil
}

// NewNetns makes a namespace that nothing but the returned file holds: when
// the process ends, however it ends, the namespace and all in it are gone.
// Its loopback interface is up.
func NewNetns() (*Netns, error) {
	var ns *Netns
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace: %w (root is needed)", err)
		}
		ns, err = OpenNetns("")
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := ns.loopbackUp(); err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	return ns, nil
}

// Do runs fn on a thread of its own inside the namespace. The thread ends
// with fn, so nothing else can ever run in the wrong namespace; fn must not
// start goroutines that rely on it.
func (n *Netns) Do(fn func() error) error {
	if n.unprivileged {
		return fn()
	}
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return fn()
	})
}

// File returns the open namespace; it stays owned by n.
func (n *Netns) File() *os.File { return n.file }

// Path returns a path to the namespace that is valid in this process only.
func (n *Netns) Path() string { return fmt.Sprintf("/proc/self/fd/%d", n.file.Fd()) }

// Close lets go of the namespace.
func (n *Netns) Close() error { return n.file.Close() }

// onThread runs fn on a fresh OS thread which is never unlocked, so that the
// runtime ends the thread instead of reusing it in a foreign namespace. The
// process's first thread cannot end, and would keep that namespace alive as
// long as we live; so it is held meanwhile, and fn gets another.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThread(fn)
			return
		}
		done <- fn()
	}()
	return <-done
}
