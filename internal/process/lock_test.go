package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
	"fairlead/test/place"
	"fairlead/test/process"

	"golang.org/x/sys/unix"
)

// lockRole takes the lock of its network namespace, as a daemon does.
const lockRole = "service-lock"

// lockOrder configures a process with the role lockRole.
type lockOrder struct {
	Socket string
	// OwnRun mounts another /run first.
	OwnRun bool
	// Squat only listens on the abstract socket, as a user without capabilities.
	Squat bool
	// Background is Options.IdleExit.
	Background bool
	// Listens makes the process listen at the socket when its standard input is closed.
	Listens bool
}

// refusalFile is the file to which the role writes its error.
const refusalFile = "refusal"

func runLock(do lockOrder) error {
	if do.Squat {
		if err := unix.Setresuid(65534, 65534, 65534); err != nil {
			return err
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: lockSocket, Net: "unix"})
		if err != nil {
			return err
		}
		defer l.Close()
		process.Ready()
		process.Idle()
		return nil
	}
	if do.OwnRun {
		if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	unlock, err := lockNamespace(Options{Socket: do.Socket, IdleExit: do.Background,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		if failed := os.WriteFile(filepath.Join(filepath.Dir(do.Socket), refusalFile), []byte(err.Error()),
			0o600); failed != nil {
			return failed
		}
		process.Ready()
		return nil
	}
	process.Ready()
	process.Idle()
	if do.Listens {
		if _, err := net.Listen("unix", do.Socket); err != nil {
			return err
		}
		select {}
	}
	return unlock()
}

// startRole calls Start for the socket of its order, and fails if it starts a daemon.
const startRole = "service-start"

func runStart(do lockOrder) error {
	process.Ready()
	started, err := Start(context.Background(), Beside(do.Socket, ""))
	if err == nil && started {
		err = errors.New("a daemon was started")
	}
	return err
}

// locks starts processes that lock one network namespace.
type locks struct {
	*testing.T
	at child.Place
}

func newLocks(t *testing.T) locks {
	t.Helper()
	ns := kerneltest.Netns(t)
	return locks{t, child.Place{Netns: ns.File()}}
}

// take starts a process that must get the lock.
func (l locks) take(do lockOrder) *process.Process {
	l.Helper()
	p, why := l.try(do)
	if why != "" {
		l.Fatalf("refused: %s", why)
	}
	return p
}

// try starts a process that tries to get the lock, and returns its error.
func (l locks) try(do lockOrder) (p *process.Process, refusal string) {
	l.Helper()
	if do.Socket == "" {
		do.Socket = filepath.Join(l.TempDir(), "s")
	}
	at := l.at
	at.Contained = do.OwnRun
	p = process.Start(l, lockRole, do, at)
	why, _ := os.ReadFile(filepath.Join(filepath.Dir(do.Socket),
		refusalFile)) // it does not exist if the process has the lock
	return p, string(why)
}

func TestOneDaemonPerNamespace(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	first := l.take(lockOrder{})
	newLocks(t).take(lockOrder{}) // in another namespace
	_, why := l.try(lockOrder{})
	for _, want := range []string{fmt.Sprintf("process %d (", first.Cmd.Process.Pid),
		"is the daemon of this network namespace", "use it with --socket /"} {
		if !strings.Contains(why, want) {
			t.Errorf("the second daemon got %q, want %q", why, want)
		}
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	second := l.take(lockOrder{}) // the kernel has released the lock
	second.In.Close()
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	l.take(lockOrder{})
}

// TestLockWithAnotherRun starts a second daemon with another /run, as in a container
// on the host's network.
func TestLockWithAnotherRun(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	first := l.take(lockOrder{})
	if _, why := l.try(lockOrder{OwnRun: true}); !strings.Contains(why, "is the daemon of this network namespace") {
		t.Errorf("the second daemon got %q", why)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	l.take(lockOrder{OwnRun: true})
}

// TestUnprivilegedSquatter checks that a daemon starts although an unprivileged
// process has the abstract socket, and that a second daemon still does not.
func TestUnprivilegedSquatter(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	process.Start(t, lockRole, lockOrder{Squat: true}, l.at)
	l.take(lockOrder{})
	if _, why := l.try(lockOrder{}); !strings.Contains(why, "is the daemon of this network namespace") {
		t.Errorf("the second daemon got %q", why)
	}
}

// TestBackgroundDaemonGivesWay starts a daemon while one in the background runs, which a command has started. With the
// same socket it replaces that one. Two in the background exclude each other, and so do daemons with other sockets.
func TestBackgroundDaemonGivesWay(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	socket := filepath.Join(t.TempDir(), "s")
	background := l.take(lockOrder{Socket: socket, Background: true})
	if _, why := l.try(lockOrder{}); !strings.Contains(why, "is the daemon of this network namespace") {
		t.Errorf("a daemon with another socket got %q", why)
	}
	l.take(lockOrder{Socket: socket})
	var ended *exec.ExitError
	if err := background.Wait(); !errors.As(err, &ended) || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("the daemon in the background ended with %v, want SIGTERM", err)
	}
	if _, why := l.try(lockOrder{Socket: filepath.Join(t.TempDir(), "s"), Background: true}); why == "" {
		t.Error("a daemon in the background has replaced the one of the administrator")
	}
}

// TestStartWaits runs a command while the daemon for its socket starts: it waits for that one, and starts no other. The
// daemon listens when the command has looked at its lock. The test is not parallel, because others look at all locks.
func TestStartWaits(t *testing.T) {
	l := newLocks(t)
	socket := filepath.Join(t.TempDir(), "s")
	daemon := l.take(lockOrder{Socket: socket, Listens: true})
	looked := opened(t, lockOf(t, socket))
	command := process.Start(t, startRole, lockOrder{Socket: socket}, l.at)
	looked()
	daemon.In.Close()
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

// lockOf returns the file with the lock of the daemon for a socket.
func lockOf(t *testing.T, socket string) string {
	t.Helper()
	all, _ := filepath.Glob(filepath.Join(RunDir, lockPrefix+"*")) // the pattern is valid
	for _, path := range all {
		if text, _ := os.ReadFile(path); strings.Contains(string(text), strconv.Quote(socket)) {
			return path
		}
	}
	t.Fatalf("no daemon has a lock for %s", socket)
	return ""
}

// opened returns a function that waits until a process opens the file.
func opened(t *testing.T, path string) (wait func()) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
	}
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { events.Close() })
	return func() {
		t.Helper()
		err := events.SetReadDeadline(time.Now().Add(place.Timeout))
		if err == nil {
			_, err = events.Read(make([]byte, 4096))
		}
		if err != nil {
			t.Fatalf("wait until a process opens %s: %v", path, err)
		}
	}
}

// TestStartLockExcludes: of processes that start a daemon, only one at a time has the lock, although each of them
// removes the file.
func TestStartLockExcludes(t *testing.T) {
	opt := Options{Run: t.TempDir()}
	var inside atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				unlock, err := lockStart(opt)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				runtime.Gosched()
				inside.Add(-1)
				if err := unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(opt.Run); err != nil || len(left) != 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
	// A link must not make the daemon create or lock a file elsewhere.
	aim, link := filepath.Join(t.TempDir(), "aim"), filepath.Join(opt.Run, "start.lock")
	if err := os.Symlink(aim, link); err != nil {
		t.Fatal(err)
	}
	if _, err := lockStart(opt); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link: %v", err)
	}
	if _, err := os.Lstat(aim); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file that the link names: %v", err)
	}
}
