// Package process runs a test's own binary again in a role, in another namespace or cgroup, so that
// the test can end or kill it. The package's TestMain registers the roles with child.Roles.
package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"fairlead/internal/child"

	"golang.org/x/sys/unix"
)

// ready is what a process prints after it has executed its order.
const ready = "ready\n"

// Process is a running role.
type Process struct {
	*child.Process
	// In is the standard input of the process, and Out its standard output, which ends when neither
	// the process nor a descendant has it open.
	In  io.WriteCloser
	Out *bufio.Reader
}

// Run starts a role, which is killed when the test ends.
func Run(t testing.TB, role string, at child.Place) *Process {
	t.Helper()
	cmd := child.Self(role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	// The output can be read after the process has ended, unlike that of StdoutPipe.
	out, says, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = says
	// The test's context cannot be used, because it ends before the cleanups.
	p, err := child.Start(context.Background(), cmd, at)
	if err := errors.Join(err, says.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = p.Kill(); out.Close() })
	return &Process{p, in, bufio.NewReader(out)}
}

// Start runs a role, sends its order and waits until it calls Ready.
func Start(t testing.TB, role string, order any, at child.Place) *Process {
	t.Helper()
	p := Run(t, role, at)
	if err := json.NewEncoder(p.In).Encode(order); err != nil {
		t.Fatalf("send the order to process %s: %v", role, err)
	}
	if said, err := p.Out.ReadString('\n'); said != ready {
		t.Fatalf("process %s is not ready: output %q: %v", role, said, err)
	}
	return p
}

// Ready makes Start return. A role calls it once.
func Ready() { fmt.Print(ready) }

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
