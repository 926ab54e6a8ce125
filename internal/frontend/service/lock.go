package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/store"

	"golang.org/x/sys/unix"
)

// One daemon per network namespace.
//
// A daemon removes everything with Fairlead's mark that it does not know, so two
// daemons in one network namespace would remove each other's networks. Two
// locks prevent that, and the kernel releases both when the process ends:
//
//   - flock(2) on a file below RunDir that is named after the namespace. Only
//     root can take it. It covers all processes that share /run.
//   - the abstract unix socket lockSocket, whose name is unique in a network
//     namespace. It covers other mount namespaces, such as a daemon in a
//     container on the host's network. Any user can take the name, so it counts
//     only if its owner has CAP_NET_ADMIN: who has that needs no lock to break
//     the daemon's networks.
//
// docs/adr/0038-one-daemon-per-network-namespace.md weighs the alternatives.

// lockSocket is the abstract socket's name.
const lockSocket = "@fairlead-daemon"

// lockPatience is how long a daemon that is ending may take to release the locks.
const lockPatience = 5 * time.Second

// lockPrefix begins the names of lock files.
const lockPrefix = "netns-"

// owner is the daemon that holds a namespace.
type owner struct {
	PID    int    `json:"pid"`
	Socket string `json:"socket,omitempty"`
}

// OwnedError says that another daemon holds the network namespace.
type OwnedError struct{ owner }

// Error names the owner.
func (e *OwnedError) Error() string {
	who := "another daemon"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d", e.PID)
		if command := commandOf(e.PID); command != "" {
			who += fmt.Sprintf(" (%s)", command)
		}
	}
	if e.Socket != "" {
		return fmt.Sprintf("%s is the daemon of this network namespace, and there can be only one: use it with --socket %s, or stop it first", who, e.Socket)
	}
	return who + " is the daemon of this network namespace, and there can be only one: stop it first"
}

// commandOf is the command line of a process, quoted where it holds anything but
// printable text.
func commandOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	words := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	for i, word := range words {
		if quoted := fmt.Sprintf("%q", word); quoted != `"`+word+`"` {
			words[i] = quoted
		}
	}
	return strings.Join(words, " ")
}

// lockNamespace takes the process's network namespace for a daemon. It returns
// an OwnedError if another daemon has it.
func lockNamespace(opt Options) (unlock func() error, err error) {
	end := time.Now().Add(lockPatience)
	file, err := lockFile(opt, end)
	if err != nil {
		return nil, err
	}
	socket, err := listenLock(opt.Log, end)
	if err != nil {
		return nil, errors.Join(err, file())
	}
	return func() error { return errors.Join(socket(), file()) }, nil
}

// lockFile takes the lock that only root can take.
func lockFile(opt Options, end time.Time) (unlock func() error, err error) {
	id, err := kernel.Identify("")
	if err != nil {
		return nil, fmt.Errorf("lock the network namespace: %w", err)
	}
	path := filepath.Join(RunDir, lockPrefix+strings.ReplaceAll(id, " ", "-"))
	removeStaleLocks(path)
	for {
		if err := makeDir(RunDir); err != nil {
			return nil, err
		}
		f, inUse, err := tryLock(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // another daemon has just removed the directory
		}
		if err != nil {
			return nil, fmt.Errorf("lock the network namespace: %w", err)
		}
		if inUse == nil {
			text, _ := json.Marshal(owner{os.Getpid(), opt.Socket}) // of such values it cannot fail
			if err := errors.Join(f.Truncate(0), write(f, text)); err != nil {
				return nil, errors.Join(fmt.Errorf("lock the network namespace: %w", err), f.Close())
			}
			return func() error {
				err := errors.Join(os.Remove(path), f.Close())
				_ = os.Remove(RunDir) // unless it holds anything
				return err
			}, nil
		}
		if time.Now().After(end) {
			return nil, inUse
		}
		time.Sleep(lockRetry)
	}
}

// lockRetry is left between two tries.
const lockRetry = 50 * time.Millisecond

func write(f *os.File, text []byte) error {
	_, err := f.WriteAt(text, 0)
	return err
}

// tryLock locks the file, or returns who has it.
func tryLock(path string) (f *os.File, inUse *OwnedError, err error) {
	f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		inUse := &OwnedError{}
		text, _ := os.ReadFile(path)
		_ = json.Unmarshal(text, &inUse.owner) // it may be just being written
		return nil, inUse, f.Close()
	}
	// An owner that has just ended may have removed the file.
	if is, gone := os.Stat(path); err == nil && (gone != nil || !sameFile(f, is)) {
		err = f.Close()
		if err == nil {
			return tryLock(path)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, nil, nil
}

func sameFile(f *os.File, is os.FileInfo) bool {
	info, err := f.Stat()
	return err == nil && os.SameFile(info, is)
}

// removeStaleLocks removes what daemons that were killed have left, in namespaces
// that may be gone.
func removeStaleLocks(own string) {
	all, _ := filepath.Glob(filepath.Join(RunDir, lockPrefix+"*")) // the pattern is valid
	for _, path := range all {
		if path == own {
			continue
		}
		if f, inUse, err := tryLock(path); err == nil && inUse == nil {
			_ = os.Remove(path)
			_ = f.Close()
		}
	}
}

// listenLock takes the abstract socket, unless it is held by somebody who cannot
// be a daemon.
func listenLock(log *slog.Logger, end time.Time) (unlock func() error, err error) {
	for {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: lockSocket, Net: "unix"})
		if err == nil {
			go closeCallers(l)
			return l.Close, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("lock the network namespace: %w", err)
		}
		if time.Now().After(end) {
			holder, err := lockHolder()
			if err == nil && isDaemon(holder) {
				return nil, &OwnedError{owner{PID: int(holder.Pid)}}
			}
			log.Warn("an unprivileged process holds the abstract unix socket that locks this network namespace: a daemon with another /run is not noticed",
				"socket", lockSocket, "process", holder.Pid, "error", err)
			return func() error { return nil }, nil
		}
		time.Sleep(lockRetry)
	}
}

// closeCallers closes each connection: a caller learns who listens from the
// kernel.
func closeCallers(l *net.UnixListener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // e.g. there are too many files
			time.Sleep(lockRetry)
			continue
		}
		_ = conn.Close()
	}
}

// lockHolder returns who listens on the lock's socket.
func lockHolder() (unix.Ucred, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: lockSocket, Net: "unix"})
	if err != nil {
		return unix.Ucred{}, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return unix.Ucred{}, err
	}
	var cred *unix.Ucred
	if failed := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); failed != nil || err != nil {
		return unix.Ucred{}, errors.Join(failed, err)
	}
	return *cred, nil
}

// isDaemon reports whether the process may be a daemon: it has CAP_NET_ADMIN in
// our user namespace. Of one in a PID namespace that cannot be seen, only the
// user is known.
func isDaemon(holder unix.Ucred) bool {
	if holder.Pid == 0 {
		return holder.Uid == 0
	}
	own, err := os.Readlink("/proc/self/ns/user")
	theirs, failed := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", holder.Pid))
	if err != nil || failed != nil || own != theirs {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", holder.Pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	var effective uint64
	_, err = fmt.Sscanf(rest, "%x", &effective)
	return err == nil && effective&(1<<unix.CAP_NET_ADMIN) != 0
}

// refuseForeign refuses to start a daemon by itself, with nothing stored, where
// there are networks of another that does not run: the daemon would remove them.
func refuseForeign(host *kernel.Host, files *store.File, opt Options) error {
	record, err := files.Load()
	if err != nil {
		return err
	}
	desired, err := files.Desired()
	if err != nil {
		return err
	}
	stored := len(record.Desired.Networks) + len(record.Desired.Endpoints) + len(record.Desired.Services) +
		len(desired.Networks) + len(desired.Attachments) + len(desired.Services)
	if stored > 0 {
		return nil
	}
	have, err := host.Observe(nil, nil)
	if err != nil || len(have) == 0 {
		return err
	}
	return fmt.Errorf("this network namespace has networks of a daemon that does not run, and nothing is stored below %s: name the --socket of that daemon and start it; or remove its networks: `fairlead daemon --run-dir %s --state-dir %s --socket %s`",
		opt.State, opt.Run, opt.State, opt.Socket)
}
