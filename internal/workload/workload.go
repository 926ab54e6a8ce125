// Package workload runs a command in a new cgroup in the host's network namespace,
// with published ports. The publish mode `socket` decides how ports are published,
// and the engine applies it.
//
// Theory of operation. The engine of a workload lives as long as the command,
// keeps its record in memory and pins nothing: however this process ends, its eBPF
// programs end with it. If this process is killed, the kernel kills the command.
// The cgroup with the command's children then stays, but the lock on its directory
// is released, so the next run knows that it may remove the cgroup.
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
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/publish"
	"fairlead/internal/store"

	"golang.org/x/sys/unix"
)

// prefix is the prefix of workloads' cgroups.
const prefix = plan.Mark + "-run-"

// Options are the command to run and its ports.
type Options struct {
	// Name is the workload's name in messages; the default is the command's name.
	Name string
	// Publishes are its ports. Run sets Endpoint and Via.
	Publishes []model.Publish
	Unlisted  model.Unpublished
	// Command is the program and its arguments.
	Command []string
}

// Validate returns the mistakes in the options.
func (o Options) Validate() error { return desired(o, "/").Validate() }

// Run runs the command with this process's standard streams until it ends, and
// returns its exit code as a shell does: 128 plus the signal's number if a signal
// ended it. It forwards SIGINT, SIGTERM and SIGHUP to the command. Returns a
// *model.PortTakenError if a host port is in use.
func Run(opt Options) (code int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
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
	e := engine.New(engine.Config{Kernel: private{h}, Flows: h, Inspector: h, Store: &store.Memory{},
		StartProxy: noProxy})
	state := desired(opt, g.Path)
	if err := free(h, state.Publishes); err != nil {
		return 0, err
	}
	ctx := context.Background()
	if _, err := e.Set(ctx, state); err != nil {
		return 0, err
	}
	defer func() {
		_, removed := e.Set(ctx, model.State{})
		err = errors.Join(err, removed)
	}()
	return start(ctx, opt.Command, g, signals)
}

// private is the host without the objects that Fairlead's daemon or other
// workloads have made: this engine must not remove objects that it finds at start.
type private struct{ *kernel.Host }

// Observe implements engine.Kernel.
func (private) Observe(_, _ plan.Plan) (plan.Plan, error) { return nil, nil }

func noProxy(context.Context) (engine.Proxy, error) {
	return nil, errors.New("a workload in the host's namespace needs no proxy")
}

// desired returns the desired state of a host with only this workload.
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

// free returns an error that names the owner of a host port that is in use. The
// workload does not run yet, so every socket belongs to another program.
func free(h *kernel.Host, publishes []model.Publish) error {
	for _, p := range publishes {
		var mappings []plan.EBPFMapping
		for _, host := range publish.Hosts(p) {
			mappings = append(mappings, plan.EBPFMapping{Proto: p.Proto, Host: host, Ports: p.HostPorts})
		}
		err := h.Sockets().CheckPorts(mappings)
		if inUse, ok := errors.AsType[*sockdiag.PortInUseError](err); ok {
			return &model.PortTakenError{Publish: p, Owner: inUse.Owner.String()}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start runs the command and forwards signals to it.
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
				_ = cmd.Process.Signal(s) // fails only if the command has just ended
			}
		case <-p.Done():
			return exitCode(p.Wait())
		}
	}
}

// atTerminal reports whether this process is in the foreground of a terminal: the
// terminal then sends SIGINT to the command, too.
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
