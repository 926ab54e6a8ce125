// Package workload runs a command in the host's own network namespace with
// published ports, as a cgroup of its own. It does not decide how ports are
// published; the way `socket` does, and the engine carries it out.
//
// Theory of operation. The engine of such a workload lives as long as the
// command, keeps its record in memory and pins nothing: however this process
// ends, its programs end with it. A command that outlives it is killed by the
// kernel. What it leaves then is the cgroup with the command's own children;
// the lock on the directory is gone, by which the next run knows that it is
// nobody's.
package workload

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"fairlead/internal/cgroup"
	"fairlead/internal/child"
	"fairlead/internal/engine"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
	"fairlead/internal/store"

	"golang.org/x/sys/unix"
)

// prefix marks the cgroups of workloads.
const prefix = plan.Mark + "-run-"

// Options say what to run.
type Options struct {
	// Name is the workload's in messages; empty means the command's.
	Name string
	// Publishes are its ports. Endpoint and Via are filled in.
	Publishes []model.Publish
	Unlisted  model.Unpublished
	// Command is the program and its arguments.
	Command []string
}

// Validate says what in the options cannot be.
func (o Options) Validate() error { return desired(o, "/").Validate() }

// Run runs the command on our own standard streams until it ends, and returns
// its exit code as a shell tells it: 128 and the signal's number if one ended
// it. Signals that would end us are the command's to handle.
func Run(opt Options) (code int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup makes it
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	g, err := cgroup.New(prefix)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	h, err := kernel.Open("", kernel.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	e := engine.New(engine.Config{Kernel: own{h}, Store: &store.Memory{}, StartProxy: noProxy})
	state := desired(opt, g.Path)
	if err := free(h, state.Publishes); err != nil {
		return 0, err
	}
	ctx := context.Background()
	if _, err := e.Set(ctx, state); err != nil {
		return 0, err
	}
	defer func() {
		_, gone := e.Set(ctx, model.State{})
		err = errors.Join(err, gone)
	}()
	return start(ctx, opt.Command, g, signals)
}

// own is the host without what others of ours have made in it: a daemon, or
// other workloads. What we find at our start is never ours to remove.
type own struct{ *kernel.Host }

// Observe implements engine.Kernel.
func (own) Observe(_, _ plan.Plan) (plan.Plan, error) { return nil, nil }

func noProxy(context.Context) (engine.Proxy, error) {
	return nil, errors.New("a workload in the host's namespace needs no proxy")
}

// desired is the state of a host with this one workload.
func desired(opt Options, path string) model.State {
	name := opt.Name
	if name == "" {
		name = filepath.Base(opt.Command[0])
	}
	s := model.State{
		Networks:  []model.Network{{Name: "host", Driver: model.DriverHost}},
		Endpoints: []model.Endpoint{{Name: name, Network: "host", Cgroup: path, Unpublished: opt.Unlisted}},
	}
	for _, p := range opt.Publishes {
		p.Endpoint, p.Via = name, model.ViaSocket
		s.Publishes = append(s.Publishes, p)
	}
	return s
}

// free says who holds a host port that is to be published. Nothing of the
// workload runs yet, so every socket there is another's.
func free(h *kernel.Host, publishes []model.Publish) error {
	for _, p := range publishes {
		var mappings []plan.EBPFMapping
		for _, host := range publish.Hosts(p) {
			mappings = append(mappings, plan.EBPFMapping{Proto: p.Proto, Host: host, Ports: p.HostPorts})
		}
		err := h.CheckPorts(mappings)
		var inUse *kernel.PortInUseError
		if errors.As(err, &inUse) {
			return &model.PortTakenError{Publish: p, Owner: inUse.Owner.String()}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start runs the command and passes signals on to it.
func start(ctx context.Context, command []string, g *cgroup.Group, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	p, err := child.Start(ctx, cmd, child.Place{Cgroup: g.Dir})
	if err != nil {
		return 0, err
	}
	for {
		select {
		case s := <-signals:
			if s != syscall.SIGINT || !atTerminal() {
				_ = cmd.Process.Signal(s) // it may have ended just now
			}
		case <-p.Done():
			return exitCode(p.Wait())
		}
	}
}

// atTerminal reports whether we are in the foreground of a terminal: its
// interrupt goes to the command as well as to us.
func atTerminal() bool {
	foreground, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
