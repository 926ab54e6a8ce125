// Package daemons runs complete daemons, like `fairlead daemon`, for tests that stop and kill them.
// It sends no requests by itself.
package daemons

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/frontend/admin"
	daemonprocess "fairlead/internal/process"
	"fairlead/test/process"

	"golang.org/x/sys/unix"
)

// Role is the role of a daemon's process; Main is its main function.
const Role = "whole-daemon"

// Order contains the fields of process.Options that tests set for a daemon.
type Order struct {
	Run, State, Socket, Docker string
	// Metrics is where the metrics are served; empty means nowhere.
	Metrics string
	// Dashboard is where the dashboard is served; empty means nowhere.
	Dashboard string
	// Version is the version that the daemon reports; empty in most tests.
	Version  string
	TearDown bool
}

func (o Order) options() daemonprocess.Options {
	opt := daemonprocess.Options{Run: o.Run, State: o.State, Socket: o.Socket, Docker: o.Docker,
		Metrics: o.Metrics, Version: o.Version, TearDown: o.TearDown}
	opt.Dashboard.Address = o.Dashboard
	return opt
}

// In returns an order that keeps all files in one directory and does not serve Docker.
func In(dir string) Order {
	return Order{Run: filepath.Join(dir, "run"), State: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "s")}
}

// Main runs a daemon in the process's network namespace until a signal arrives.
func Main() int {
	return process.Main(func(do Order) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		opt := do.options()
		opt.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		opt.Ready = process.Ready
		return daemonprocess.Run(ctx, opt)
	})()
}

// Daemon is the daemon of a host. It may be started again after it has stopped.
type Daemon struct {
	Order
	// Client sends requests to the current process.
	Client  *admin.Client
	t       testing.TB
	at      child.Place
	process *process.Process
}

// New starts the first process. When the test ends, the last process is killed.
func New(t testing.TB, do Order, at child.Place) *Daemon {
	t.Helper()
	if err := daemonprocess.MakeDirs(do.options()); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Order: do, t: t, at: at}
	// The mount still exists only if the test has failed.
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(do.Run, "bpf"), unix.MNT_DETACH) })
	t.Cleanup(func() { endGateway(t, do.Run) })
	d.Start()
	return d
}

// endGateway ends the host's gateway, if it has one: it outlives the daemon. It is the process that writes the
// gateway's log.
func endGateway(t testing.TB, run string) {
	t.Helper()
	outputs, err := filepath.Glob("/proc/[0-9]*/fd/2")
	if err != nil {
		t.Fatal(err)
	}
	for _, output := range outputs {
		to, err := os.Readlink(output)
		if err != nil || to != filepath.Join(run, "gateway.log") {
			continue // it has ended, or is another program
		}
		pid, err := strconv.Atoi(strings.Split(output, "/")[2])
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) {
			t.Errorf("end the gateway: %v", err)
		}
	}
}

// Start starts the next process, and waits until it is ready.
func (d *Daemon) Start() {
	d.t.Helper()
	d.process = process.Start(d.t, Role, d.Order, d.at)
	d.Client = admin.NewClient(d.Socket) // the previous client's connections are closed
}

// endLimit is how long a daemon or a command may take to end.
const endLimit = 5 * time.Minute

// Stop ends the process with the signal that users send (SIGTERM).
func (d *Daemon) Stop() {
	d.t.Helper()
	if err := d.process.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatalf("end the daemon: %v", err)
	}
	select {
	case <-d.process.Done():
	case <-time.After(endLimit):
		d.t.Fatalf("the daemon has not ended %v after SIGTERM", endLimit)
	}
	if err := d.process.Wait(); err != nil {
		d.t.Fatalf("the daemon exits with: %v", err)
	}
}

// Kill ends the process as kill -9 does.
func (d *Daemon) Kill() { _ = d.process.Kill() }

// PID returns the process's id.
func (d *Daemon) PID() int { return d.process.Cmd.Process.Pid }

// Pause stops the process until resume is called. When it returns, no thread runs.
func (d *Daemon) Pause() (resume func()) { return process.Pause(d.t, d.PID()) }
