// Package netns opens, creates and enters network namespaces, and identifies them.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// NoID stands for a namespace that has no id in the host's namespace.
const NoID = -1

// Namespace is an open network namespace. The namespace lives at least as long
// as the file stays open.
type Namespace struct {
	file *os.File
	// unprivileged says that this is the namespace of the process itself and that
	// the process may not enter namespaces: Do runs in the caller's thread.
	unprivileged bool
}

// Open opens the namespace at path, e.g. /run/netns/web or
// /proc/4711/ns/net. The empty path is the caller's own namespace. The error
// wraps os.ErrNotExist if there is no namespace at path.
func Open(path string) (*Namespace, error) {
	unprivileged := path == "" && os.Geteuid() != 0
	if path == "" {
		path = "/proc/thread-self/ns/net"
	}
	// With O_PATH, the file itself is not opened: a FIFO would wait for a writer, and a
	// device such as /dev/watchdog would start.
	at, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	defer at.Close()
	// `ip netns del` and a reboot can leave a plain file at the path: the
	// namespace does not exist any more.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(at.Fd()), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		return nil, fmt.Errorf("open network namespace %s: the file is not a network namespace: %w", path,
			os.ErrNotExist)
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", at.Fd()))
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return &Namespace{f, unprivileged}, nil
}

// New creates a namespace that only the returned file keeps alive: when the
// process ends or is killed, the kernel deletes the namespace with everything in
// it. Its loopback interface is up. It needs root.
func New() (*Namespace, error) {
	var ns *Namespace
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("create network namespace: %w (root is needed)", err)
		}
		ns, err = Open("")
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
func (n *Namespace) Do(fn func() error) error {
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
func (n *Namespace) File() *os.File { return n.file }

// Path returns a path to the namespace that is valid in this process only.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/self/fd/%d", n.file.Fd()) }

// Unprivileged reports whether this is the namespace of the process itself, and
// the process may not enter namespaces.
func (n *Namespace) Unprivileged() bool { return n.unprivileged }

// Open opens the namespace at path; "" means n itself.
func (n *Namespace) Open(path string) (*Namespace, error) {
	if path == "" && !n.unprivileged {
		path = n.Path()
	}
	return Open(path)
}

// Netlink opens a netlink socket of the protocol (NETLINK_ROUTE …) in the
// namespace.
func (n *Namespace) Netlink(protocol int) (*netlink.Handle, error) {
	if n.unprivileged {
		return netlink.NewHandle(protocol)
	}
	return netlink.NewHandleAt(vnetns.NsHandle(n.file.Fd()), protocol)
}

// loopbackUp sets the namespace's loopback interface up.
func (n *Namespace) loopbackUp() error {
	handle, err := n.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer handle.Close()
	lo, err := handle.LinkByName("lo")
	if err != nil {
		return err
	}
	return handle.LinkSetUp(lo)
}

// Cookie returns the number with which the kernel identifies the namespace. It is
// never used again until the next boot. Needs Linux 5.14.
func (n *Namespace) Cookie() (cookie uint64, err error) {
	err = n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the cookie of the network namespace (needs Linux 5.14): %w", err)
	}
	return cookie, nil
}

// Identify returns a string that identifies the namespace at path until the next
// boot. The error wraps os.ErrNotExist if there is no namespace.
func Identify(path string) (string, error) {
	ns, err := Open(path)
	if err != nil {
		return "", err
	}
	defer ns.Close()
	return ns.Identity()
}

// Identity returns the namespace's cookie, which the kernel never reuses. Before
// Linux 5.14 it returns the inode, which a later namespace may get again.
func (n *Namespace) Identity() (string, error) {
	cookie, err := n.Cookie()
	if err == nil {
		return fmt.Sprintf("cookie %x", cookie), nil
	}
	if !errors.Is(err, unix.ENOPROTOOPT) {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(n.file.Fd()), &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("inode %x:%x", st.Dev, st.Ino), nil
}

// Close closes the file of the namespace.
func (n *Namespace) Close() error { return n.file.Close() }

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
