package process

import (
	"context"
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
	"fairlead/internal/kernel/netns"
	"fairlead/internal/store"
	"fairlead/internal/unixsock"

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
//     only if its owner has CAP_NET_ADMIN. A process with that capability can
//     change the daemon's networks anyway.
//
// docs/adr/0038-one-daemon-per-network-namespace.md compares the alternatives.

// lockSocket is the name of the abstract socket.
const lockSocket = "@fairlead-daemon"

// lockTimeout is how long to wait for a daemon that is ending to release the locks.
const lockTimeout = 5 * time.Second

// lockPrefix is the prefix of the lock files' names.
const lockPrefix = "netns-"

// owner is the daemon that has the lock of a namespace. A daemon in the background was started by a command, and gives
// way to the one that an administrator or the service manager starts.
type owner struct {
	PID        int    `json:"pid"`
	Socket     string `json:"socket,omitempty"`
	State      string `json:"state,omitempty"`
	Background bool   `json:"background,omitempty"`
}

// OwnedError is the error if another daemon runs in the network namespace.
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

// commandOf returns the command line of a process, with each word quoted that is not
// printable text.
func commandOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // the process may have ended
	words := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	for i, word := range words {
		if quoted := fmt.Sprintf("%q", word); quoted != `"`+word+`"` {
			words[i] = quoted
		}
	}
	return strings.Join(words, " ")
}

// lockNamespace locks the process's network namespace for a daemon. Returns
// *OwnedError if another daemon has the lock.
func lockNamespace(opt Options) (unlock func() error, err error) {
	end := time.Now().Add(lockTimeout)
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

// lockPath returns the path of the file that only root can lock.
func lockPath() (string, error) {
	id, err := netns.Identify("")
	if err != nil {
		return "", fmt.Errorf("lock the network namespace: %w", err)
	}
	return filepath.Join(RunDir, lockPrefix+strings.ReplaceAll(id, " ", "-")), nil
}

// lockFile locks the file that only root can lock. A daemon in the background with the same socket and state gives way to
// another one. A second one in the background does not wait for it.
func lockFile(opt Options, end time.Time) (unlock func() error, err error) {
	path, err := lockPath()
	if err != nil {
		return nil, err
	}
	removeStaleLocks(path)
	for asked := false; ; {
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
			own := owner{os.Getpid(), opt.Socket, opt.State, opt.IdleExit}
			text, _ := json.Marshal(own) // cannot fail for these types
			if err := errors.Join(f.Truncate(0), write(f, text)); err != nil {
				return nil, errors.Join(fmt.Errorf("lock the network namespace: %w", err), f.Close())
			}
			return func() error {
				err := errors.Join(os.Remove(path), f.Close())
				_ = os.Remove(RunDir) // fails if it is not empty
				return err
			}, nil
		}
		same := inUse.Socket == opt.Socket && inUse.State == opt.State
		if same && inUse.Background && !opt.IdleExit && !asked {
			asked = inUse.giveWay()
		}
		if same && opt.IdleExit && answers(context.Background(), opt.Socket) || time.Now().After(end) {
			return nil, inUse
		}
		time.Sleep(lockRetry)
	}
}

// giveWay asks the daemon to end, which keeps what is on the host. It reports false if the process may be another one.
func (o *owner) giveWay() bool {
	process, err := unix.PidfdOpen(o.PID, 0)
	if err != nil {
		return false
	}
	defer unix.Close(process)
	// The socket is of this namespace, and the kernel names its process: it is the one that was opened.
	if holder, err := lockHolder(); err != nil || int(holder.Pid) != o.PID || !isDaemon(holder) {
		return false
	}
	return unix.PidfdSendSignal(process, unix.SIGTERM, nil, 0) == nil
}

// starting reports whether a daemon that shall listen at the socket has the lock of this namespace.
func starting(socket string) (bool, error) {
	path, err := lockPath()
	if err != nil {
		return false, err
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the lock of the network namespace: %w", err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return false, err // its daemon has ended
	}
	var has owner
	text, err := os.ReadFile(path)
	_ = json.Unmarshal(text, &has) // the owner may be writing it
	return has.Socket == socket, err
}

// lockRetry is the time between two attempts.
const lockRetry = 50 * time.Millisecond

func write(f *os.File, text []byte) error {
	_, err := f.WriteAt(text, 0)
	return err
}

// tryLock locks the file, or returns the owner of the lock.
func tryLock(path string) (f *os.File, inUse *OwnedError, err error) {
	return lockAt(path, unix.LOCK_EX|unix.LOCK_NB)
}

// lockAt locks the file as flock(2) does with these flags. With LOCK_NB, it returns the owner of a lock.
func lockAt(path string, how int) (f *os.File, inUse *OwnedError, err error) {
	f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	err = unix.Flock(int(f.Fd()), how)
	if errors.Is(err, unix.EWOULDBLOCK) {
		inUse := &OwnedError{}
		text, _ := os.ReadFile(path)
		_ = json.Unmarshal(text, &inUse.owner) // the owner may be writing it
		return nil, inUse, f.Close()
	}
	// An owner that has just ended may have removed the file.
	if is, gone := os.Stat(path); err == nil && (gone != nil || !sameFile(f, is)) {
		err = f.Close()
		if err == nil {
			return lockAt(path, how)
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

// removeStaleLocks removes the lock files of killed daemons. Their namespaces may not
// exist any more.
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

// listenLock listens on the abstract socket. If a process that cannot be a daemon
// has the socket, listenLock logs a warning and succeeds.
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
			log.Warn("an unprivileged process has the abstract unix socket that locks this network namespace: a "+
				"daemon with another /run cannot be detected",
				"socket", lockSocket, "process", holder.Pid, "error", err)
			return func() error { return nil }, nil
		}
		time.Sleep(lockRetry)
	}
}

// closeCallers closes each connection. Callers get the listener's credentials from
// the kernel.
func closeCallers(l *net.UnixListener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // e.g. too many open files
			time.Sleep(lockRetry)
			continue
		}
		_ = conn.Close()
	}
}

// lockHolder returns the credentials of the process that listens on the lock's
// socket.
func lockHolder() (unix.Ucred, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: lockSocket, Net: "unix"})
	if err != nil {
		return unix.Ucred{}, err
	}
	defer conn.Close()
	who, err := unixsock.PeerOf(conn)
	return who.Ucred, err
}

// isDaemon reports whether the process can be a daemon: it has CAP_NET_ADMIN in this
// process's user namespace. For a process in an invisible PID namespace, only the
// user is known; it counts as a daemon if the user is root.
func isDaemon(holder unix.Ucred) bool {
	if holder.Pid == 0 {
		return holder.Uid == 0
	}
	own, err := os.Readlink("/proc/self/ns/user")
	other, failed := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", holder.Pid))
	if err != nil || failed != nil || own != other {
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

// refuseForeign returns an error if nothing is stored and the namespace has networks
// of another daemon that does not run. A daemon that a command starts would remove
// these networks.
func refuseForeign(host *kernel.Host, files *store.File, opt Options) error {
	record, err := files.Load()
	if err != nil {
		return err
	}
	desired, err := files.Desired()
	if err != nil {
		return err
	}
	stored := len(record.Applied.Networks) + len(record.Applied.Endpoints) + len(record.Applied.Services) +
		len(desired.Networks) + len(desired.Attachments) + len(desired.Services)
	if stored > 0 {
		return nil
	}
	have, err := host.Observe(nil, nil)
	if err != nil || len(have) == 0 {
		return err
	}
	return fmt.Errorf("start a daemon: this network namespace has networks of a daemon that does not run, and "+
		"nothing is stored in %s: start that daemon with its --socket; or remove its networks with `fairlead daemon "+
		"--run-dir %s --state-dir %s --socket %s`",
		opt.State, opt.Run, opt.State, opt.Socket)
}
