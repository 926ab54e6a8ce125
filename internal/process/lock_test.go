package process

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/child"
	"fairlead/internal/kernel/kerneltest"
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
	unlock, err := lockNamespace(Options{Socket: do.Socket, Log: slog.New(slog.DiscardHandler)})
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
	return unlock()
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
	do.Socket = filepath.Join(l.TempDir(), "s")
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
