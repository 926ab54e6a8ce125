// Package child starts child processes in a given network namespace and
// cgroup. The kernel kills a child when this process dies, unless the child is
// meant to outlive it.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Role is the environment variable that selects the role of a re-executed
// binary; see Dispatch.
const Role = "FAIRLEAD_ROLE"

// Roles maps a role's name to its main function, which returns an exit code.
type Roles map[string]func() int

// Dispatch runs the role that the environment variable Role names, and exits
// with its exit code, or with 2 if the role is unknown. It returns if the
// variable is not set. main, and every TestMain whose tests start children,
// must call it first.
func Dispatch(roles Roles) {
	name := os.Getenv(Role)
	if name == "" {
		return
	}
	role, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "fairlead: unknown role %q\n", name)
		os.Exit(2)
	}
	os.Exit(role())
}

// ExitCode returns the exit code of a role that ends with the error, and prints the error.
func ExitCode(role string, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "fairlead %s: %v\n", role, err)
	return 1
}

// Self returns a command that re-executes this binary in the role.
func Self(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = "fairlead-" + role
	cmd.Env = append(os.Environ(), Role+"="+role)
	return cmd
}

// Place is where a child runs.
type Place struct {
	// Netns is an open network namespace. If nil, the child stays in the
	// namespace of this process.
	Netns *os.File
	// Cgroup is an open cgroup v2 directory. If nil, the child stays in the
	// cgroup of this process.
	Cgroup *os.File
	// Contained gives the child new PID, mount, UTS and IPC namespaces, as a
	// container engine does.
	Contained bool
	// Outlives gives the child a new session and lets it continue when this
	// process dies.
	Outlives bool
}

// Process is a started child.
type Process struct {
	Cmd  *exec.Cmd
	ctx  context.Context
	done chan struct{}
	err  error
}

// Start runs cmd in the place, and kills it when ctx ends. Unless at.Outlives
// is set, the kernel also kills the child when this process dies for any
// reason (PR_SET_PDEATHSIG). The kernel sends that signal when the thread that
// forked the child ends, so that thread waits until the child has ended.
func Start(ctx context.Context, cmd *exec.Cmd, at Place) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if at.Outlives {
		cmd.SysProcAttr.Setsid = true
	} else {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if at.Cgroup != nil {
		cmd.SysProcAttr.UseCgroupFD = true
		cmd.SysProcAttr.CgroupFD = int(at.Cgroup.Fd())
	}
	if at.Contained {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	}
	p := &Process{Cmd: cmd, ctx: ctx, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(at, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Args[0], err)
	}
	context.AfterFunc(ctx, func() { _ = p.Kill() })
	return p, nil
}

// run locks one OS thread for the child's whole life and never unlocks it, so
// that the thread, which may be in another namespace, ends with the goroutine.
// The process's first thread cannot end: if run is on it, run keeps it locked
// until another thread has started the child.
func (p *Process) run(at Place, started chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		defer runtime.UnlockOSThread()
		began := make(chan error, 1)
		go p.run(at, began)
		started <- <-began
		return
	}
	defer close(p.done)
	if at.Netns != nil {
		if err := unix.Setns(int(at.Netns.Fd()), unix.CLONE_NEWNET); err != nil {
			started <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
	}
	err := p.Cmd.Start()
	started <- err
	if err == nil {
		p.err = p.Cmd.Wait()
	}
}

// Wait blocks until the child has ended, and returns its error.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Ended waits as Wait does, but returns nil if the context passed to Start has
// ended: then Start killed the child on purpose.
func (p *Process) Ended() error {
	err := p.Wait()
	if p.ctx.Err() != nil {
		return nil
	}
	return err
}

// Done returns a channel that is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// killLimit is how long a killed process may take to end. One that waits for a
// device or a file system that does not answer takes longer.
const killLimit = 10 * time.Second

// Kill kills the child (SIGKILL) and waits until it has ended. It returns nil
// if the child had already ended. If this process may not kill it, because it
// has another user and this process lacks CAP_KILL, or if it does not end within
// ten seconds, Kill returns an error, and the child may still run.
func (p *Process) Kill() error {
	err := p.Cmd.Process.Kill()
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", p.Cmd.Process.Pid, err)
	}
	return AwaitKilled(p.Cmd.Process.Pid, p.done)
}

// AwaitKilled waits until a killed process has ended, which closes done. Returns
// an error if that takes longer than ten seconds.
func AwaitKilled(pid int, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-time.After(killLimit):
		return fmt.Errorf("kill process %d: it has not ended %v after SIGKILL", pid, killLimit)
	}
}
