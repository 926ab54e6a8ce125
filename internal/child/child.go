// Package child starts processes that cannot stray: each runs in a chosen
// network namespace and cgroup, and is killed when we die unless it is meant
// to outlive us. It does not know what they do.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Role is the environment variable that tells a re-executed binary what to be.
const Role = "FAIRLEAD_ROLE"

// Roles maps a role's name to its main function, which returns an exit code.
type Roles map[string]func() int

// Dispatch runs the role that the environment names and exits with its code;
// without one it returns. main and every TestMain that starts children call
// it first.
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

// Self returns a command that re-executes this binary in a role.
func Self(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = "fairlead-" + role
	cmd.Env = append(os.Environ(), Role+"="+role)
	return cmd
}

// Place says where a child runs.
type Place struct {
	// Netns is an open network namespace; nil means ours.
	Netns *os.File
	// Cgroup is an open cgroup v2 directory; nil means ours.
	Cgroup *os.File
	// Contained gives the child PID, mount, UTS and IPC namespaces of its
	// own, as a container engine does.
	Contained bool
	// Outlives gives the child a session of its own and lets it live on when
	// we die.
	Outlives bool
}

// Process is a started child.
type Process struct {
	Cmd  *exec.Cmd
	ctx  context.Context
	done chan struct{}
	err  error
}

// Start runs cmd in its place. Unless it outlives us, the kernel kills the
// child when this process dies, however it dies: the thread that forked it
// stays parked until the child ends, because PR_SET_PDEATHSIG watches that
// thread.
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

// run owns one OS thread for the child's whole life and never unlocks it, so
// that the thread, which may be in a foreign namespace, ends with it. Our first
// thread cannot end, so it is held until another is taken.
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

// Ended waits as Wait does, but returns nil if the context that the child was
// started with has ended: then the child was killed on purpose.
func (p *Process) Ended() error {
	err := p.Wait()
	if p.ctx.Err() != nil {
		return nil
	}
	return err
}

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the child at once and waits for it.
func (p *Process) Kill() error {
	err := p.Cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
