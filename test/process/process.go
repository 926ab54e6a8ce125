// Package process runs a test's own binary again in a role, in another namespace or cgroup, so that
// the test can end or kill it. The package's TestMain registers the roles with child.Roles.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"

	"golang.org/x/sys/unix"
)

// Process is a running role.
type Process struct{ *child.Worker }

// Run starts a role, which is killed when the test ends.
func Run(t testing.TB, role string, at child.Place) *Process {
	t.Helper()
	// The test's context cannot be used, because it ends before the cleanups.
	w, err := child.StartWorker(context.Background(), role, at)
	return started(t, w, err)
}

// startLimit is how long a process may take until it calls Ready.
const startLimit = 5 * time.Minute

// Start runs a role, sends its order and waits until it calls Ready. A process that does not call it within five
// minutes is killed.
func Start(t testing.TB, role string, order any, at child.Place) *Process {
	t.Helper()
	ctx, kill := context.WithCancelCause(context.Background())
	late := time.AfterFunc(startLimit, func() { kill(fmt.Errorf("it is not ready after %v", startLimit)) })
	w, err := child.Order(ctx, role, order, at)
	if !late.Stop() {
		err = errors.Join(err, context.Cause(ctx))
	}
	return started(t, w, err)
}

func started(t testing.TB, w *child.Worker, err error) *Process {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return &Process{w}
}

// Ready makes Start return. A role calls it once.
func Ready() { fmt.Print(child.Ready) }

// Main returns a role that calls do with its order. The process exits with 1 if do returns an
// error.
func Main[Order any](do func(Order) error) func() int {
	return func() int {
		var order Order
		err := json.NewDecoder(os.Stdin).Decode(&order)
		if err == nil {
			err = do(order)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
}

// Pause stops a child process until resume is called. A running thread continues until it has
// received the signal. When Pause returns, no thread runs.
func Pause(t testing.TB, pid int) (resume func()) {
	t.Helper()
	err := unix.Kill(pid, unix.SIGSTOP)
	for again := err == nil; again; again = errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil)
	}
	if err != nil {
		t.Fatalf("pause process %d: %v", pid, err)
	}
	return func() {
		t.Helper()
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Fatalf("resume process %d: %v", pid, err)
		}
	}
}

// Idle is a role that waits until its standard input ends. It keeps its namespace and cgroup in
// use.
func Idle() int {
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// Seen returns a path below /proc/self of this process as a path for other
// processes.
func Seen(path string) string {
	return strings.Replace(path, "/proc/self/", fmt.Sprintf("/proc/%d/", os.Getpid()), 1)
}
