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
	// unprivileged says that this is the namespace of the process itself and that
	// the process may not enter namespaces: Do runs in the caller's thread.
	unprivileged bool
}

// OpenNetns opens the namespace at path, e.g. /run/netns/web or
// /proc/4711/ns/net. The empty path is the caller's own namespace. The error
// wraps os.ErrNotExist if there is no namespace at path.
func OpenNetns(path string) (*Netns, error) {
	unprivileged := path == "" && os.Geteuid() != 0
	if path == "" {
		path = "/proc/thread-self/ns/net"
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	// `ip netns del` and a reboot can leave a plain file at the path: the
	// namespace does not exist any more.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		f.Close()
		return nil, fmt.Errorf("open network namespace %s: the file is not a network namespace: %w", path, os.ErrNotExist)
	}
	return &Netns{f, unprivileged}, nil
}

// NewNetns creates a namespace that only the returned file keeps alive: when the
// process ends or is killed, the kernel deletes the namespace with everything in
// it. Its loopback interface is up. It needs root.
func NewNetns() (*Netns, error) {
	var ns *Netns
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create network namespace: %w (root is needed)", err)
		}
		ns, err = OpenNetns("")
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := ns.loopbackUp(); err != nil {
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	return ns, nil
}

// Do runs fn on a separate thread inside the namespace. The thread ends with fn,
// so that no other goroutine can run in that namespace by mistake. Goroutines
// that fn starts do not run in the namespace.
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

// Close closes the file of the namespace.
func (n *Netns) Close() error { return n.file.Close() }

// onThread runs fn on a locked OS thread that is never unlocked, so that the
// runtime ends the thread instead of reusing it in another namespace. The first
// thread of the process cannot end: it would keep that namespace alive as long
// as the process runs. If the goroutine is on it, it stays locked meanwhile and
// fn runs on another thread.
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
