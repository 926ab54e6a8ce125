// Package service is the daemon as a process: it opens the store, the kernel
// and the socket, says when it is ready, and ends when it is told to or has
// nothing left to do. What the daemon does is in package daemon.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"fairlead/internal/daemon"
	"fairlead/internal/dhcp"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"

	"golang.org/x/sys/unix"
)

// The default directories.
const (
	RunDir   = "/run/fairlead"
	StateDir = "/var/lib/fairlead"
)

// Options say how a daemon runs.
type Options struct {
	// Run and State are its directories; see store.Places.
	Run, State string
	// Socket is where it listens, unless it is handed a socket.
	Socket string
	// Docker is where it listens to a Docker engine, unless it is handed a
	// socket. If empty, it listens where it listened last while it has networks
	// of Docker's, unless NoDocker is set; otherwise nowhere.
	Docker   string
	NoDocker bool
	// Sockets are those that it is handed.
	Sockets Sockets
	// Metrics is where it shows them (metrics.Check), empty for nowhere, and
	// MetricsGroup may use a socket of theirs beside root. Version is in them.
	Metrics, MetricsGroup, Version string
	// IdleExit ends it when nothing is attached and nobody has asked for
	// anything for IdleGrace.
	IdleExit bool
	// XDP says which uplinks get the fast path.
	XDP kernel.XDP
	// LeaveDocker is as in kernel.Options.
	LeaveDocker bool
	// LooseSources accepts clients by any uplink (kernel.Options).
	LooseSources bool
	// TearDown removes everything from the host when it ends.
	TearDown bool
	// Ready is called when requests are answered; nil is fine.
	Ready func()
	Log   *slog.Logger
	// docker answers the engine.
	docker http.Handler
}

// IdleGrace is how long a daemon that ends by itself waits for the next
// request.
const IdleGrace = 5 * time.Second

// Run runs a daemon until ctx ends. The host's state stays, unless the options
// say otherwise.
func Run(ctx context.Context, opt Options) (err error) {
	closing := func(close func() error) { err = errors.Join(err, close()) }
	unlock, err := lockNamespace(opt)
	if err != nil {
		return err
	}
	defer closing(unlock)
	files, err := store.OpenFile(store.Places{State: opt.State, Run: opt.Run})
	if err != nil {
		return err
	}
	defer closing(files.Close)
	gauge, err := newGauge(opt)
	if err != nil {
		return err
	}
	defer closing(gauge.close)
	pins, unmount, err := pinDir(opt.Run)
	if err != nil {
		return err
	}
	defer closing(unmount)
	facts, err := kernel.Probe()
	if err != nil {
		return err
	}
	host, err := kernel.Open("", kernel.Options{Pins: pins, Rest: !opt.IdleExit, XDP: opt.XDP, LooseSources: opt.LooseSources, LeaveDocker: opt.LeaveDocker, Refused: func(link string, why error) {
		opt.Log.Info("fast path left to tc", "link", link, "why", why)
	}})
	if err != nil {
		return err
	}
	defer closing(host.Close)
	idle := newIdle(opt.IdleExit)
	proxies := newProxies(opt.Run, host.Netns(), opt.Log)
	if opt.IdleExit {
		if err := refuseForeign(host, files, opt); err != nil {
			return err
		}
	}
	if opt.Docker, err = dockerSocketOf(opt, files); err != nil {
		return err
	}
	d, err := daemon.New(daemon.Config{
		Host: host, Store: files, Sandboxes: sandbox.New(), DHCP: dhcp.Run, Facts: facts, Log: opt.Log, Changed: idle.touch, Meter: gauge,
		StartProxy: proxies.start, FindProxy: proxies.find, ProxyEnded: proxies.ended, DialReal: dialReal(host), CountReals: countReals(host),
		Containers: sandbox.New(), Lasting: files.Lasting(), Passing: files.Passing(),
	})
	if err != nil {
		return err
	}
	idle.empty = d.Empty
	opt.docker = dockerDriver(d, files, host, opt)
	defer closing(gauge.show(d, opt))
	if err := serve(ctx, opt, d, idle); err != nil || !opt.TearDown {
		return err
	}
	return d.TearDown(context.Background())
}

// serve answers requests and follows events until ctx ends, or one of the two
// fails.
func serve(ctx context.Context, opt Options, d *daemon.Daemon, idle *idle) error {
	l, done, err := opt.Sockets.take(adminSocket, opt.Socket, admin.Listen)
	if err != nil {
		return err
	}
	defer done()
	tasks := []func(context.Context) error{d.Run, serving(l, idle.handler(admin.Handler(d)), admin.ConnsPerPeer)}
	if opt.Docker != "" || opt.Sockets[dockerSocket] != nil {
		l, done, err := opt.Sockets.take(dockerSocket, opt.Docker, listenDocker)
		if err != nil {
			return err
		}
		defer done()
		tasks = append(tasks, serving(l, idle.handler(opt.docker), admin.MaxConns), dockerLabels(d, opt))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(tasks))
	for _, task := range tasks {
		go func() { results <- task(ctx) }()
	}
	warn(opt.Log, notify("READY=1"))
	go reportState(ctx, opt.Log, idle.events, d.Counts)
	opt.Log.Info("ready", "socket", opt.Socket)
	if opt.Ready != nil {
		opt.Ready()
	}
	idle.touch()
	left := len(tasks)
	select {
	case err = <-results:
		left--
	case <-idle.over:
		opt.Log.Info("nothing is attached any more")
	case <-ctx.Done():
	}
	_ = notify("STOPPING=1") // nobody waits for it
	cancel()
	for range left {
		err = errors.Join(err, <-results)
	}
	opt.Log.Info("stopped")
	return err
}

// serving answers requests that come to a socket, of which one caller has at most
// perPeer at a time. dockerd is the only caller of its socket.
func serving(l *net.UnixListener, h http.Handler, perPeer int) func(context.Context) error {
	return func(ctx context.Context) error { return admin.ServePeers(ctx, l, h, perPeer) }
}

// MakeDirs makes the daemon's directories, for files that are there before it.
// One that another user could change is refused.
func MakeDirs(opt Options) error {
	for _, dir := range []string{opt.Run, opt.State, filepath.Dir(opt.Socket)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the daemon's directory: %w", err)
		}
	}
	return errors.Join(checkDir(opt.Run), checkDir(opt.State))
}

// makeDir makes a directory that only its owner can use.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the daemon's directory: %w", err)
	}
	return checkDir(dir)
}

// checkDir refuses a directory that another user could change.
func checkDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("look at the daemon's directory %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("the daemon's directory %s could be changed by others: let it be root's alone, or name another by --run-dir and --state-dir", dir)
	}
	return nil
}
