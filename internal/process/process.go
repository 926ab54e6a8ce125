// Package process runs the daemon as a process. It opens the store, the kernel and
// the sockets, reports when the daemon is ready, and ends it on request or when it is
// idle. Package daemon contains what the daemon does.
package process

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
	"fairlead/internal/daemon/networks"
	"fairlead/internal/dhcp"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard/history"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/process/hosted"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"

	"golang.org/x/sys/unix"
)

// The default directories.
const (
	RunDir   = store.RunDir
	StateDir = store.StateDir
)

// Options configure a daemon.
type Options struct {
	// Run and State are its directories; see store.Places.
	Run, State string
	// Socket is the path of its unix socket. It is not used if Sockets has the socket.
	Socket string
	// Docker is the path of the socket for a Docker engine. It is not used if Sockets
	// has the socket. If Docker is empty and NoDocker is not set, the daemon uses its
	// last path as long as it has networks of Docker. In other cases it does not
	// listen.
	Docker   string
	NoDocker bool
	// Sockets are the sockets that the service manager passed.
	Sockets Sockets
	// Metrics is where the metrics are served (metrics.Check); empty means nowhere.
	// MetricsGroup can use a unix socket for them in addition to root. Version is a
	// label of the metrics.
	Metrics, MetricsGroup, Version string
	Dashboard                      Dashboard
	// IdleExit ends the daemon when nothing is attached and it got no request for
	// IdleGrace.
	IdleExit bool
	// XDP chooses the uplinks that forward packets in XDP.
	XDP datapath.XDP
	// LeaveDocker is as in kernel.Options.
	LeaveDocker bool
	// LooseSources accepts clients on any uplink (kernel.Options).
	LooseSources bool
	// TearDown removes everything from the host when the daemon ends.
	TearDown bool
	// Ready is called when the daemon answers requests; it can be nil.
	Ready func()
	Log   *slog.Logger
	// docker handles the Docker engine's calls, and follow are the tasks that follow it.
	docker http.Handler
	follow []func(context.Context) error
}

// IdleGrace is how long a daemon with IdleExit waits for the next request.
const IdleGrace = 5 * time.Second

// Run runs a daemon until ctx ends, or until it is idle with opt.IdleExit. The host's
// state stays unless opt.TearDown is set. Returns *OwnedError if another daemon runs
// in the network namespace.
func Run(ctx context.Context, opt Options) error {
	unlock, err := lockNamespace(opt)
	if err != nil {
		return err
	}
	return errors.Join(runLocked(ctx, opt), unlock())
}

// runLocked is Run for a caller that has locked the network namespace.
func runLocked(ctx context.Context, opt Options) (err error) {
	closing := func(close func() error) { err = errors.Join(err, close()) }
	collectOften()
	files, err := store.OpenFile(store.Places{State: opt.State, Run: opt.Run, CopyFailed: func(err error) {
		opt.Log.Warn("the store has no up-to-date copy", "error", err)
	}})
	if err != nil {
		return err
	}
	defer closing(files.Close)
	gauge, err := newGauge(opt)
	if err != nil {
		return err
	}
	defer closing(gauge.close)
	window, err := newWindow(opt)
	if err != nil {
		return err
	}
	defer closing(window.close)
	pins, removePins, err := pinDir(opt.Run)
	if err != nil {
		return err
	}
	defer closing(removePins)
	facts, err := kernel.ProbeWithoutPrograms()
	if err != nil {
		return err
	}
	host, err := kernel.Open("", kernel.Options{Pins: pins, Rest: !opt.IdleExit, XDP: opt.XDP,
		LooseSources: opt.LooseSources, LeaveDocker: opt.LeaveDocker, Refused: func(link string, why error) {
			opt.Log.Info("XDP is not available on a link: tc forwards its packets", "link", link, "why", why)
		}, OverlayRefused: func(link string, why error) {
			opt.Log.Warn("the eBPF programs do not run at a VXLAN link: the kernel handles its frames", "link", link,
				"why", why)
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
	certificates, adopt := newCertificates(opt)
	gateway := hosted.NewRunner(hosted.Options{Directory: filepath.Join(opt.Run, "gateway"),
		Errors: filepath.Join(opt.Run, "gateway.log"), State: opt.State, Netns: host.Netns(), Cluster: certificates,
		Log: opt.Log})
	d, err := daemon.New(daemon.Config{
		Kernel: host, Flows: host, Inspector: host, Counters: host, Host: host, Store: files, Sandboxes: sandbox.New(),
		DHCP: dhcp.Run, OutboundHold: networks.Hold, Facts: facts, Log: opt.Log, Changed: idle.touch, Meter: gauge,
		StartProxy: proxies.start, FindProxy: proxies.find, ProxyEnded: proxies.ended, DialReal: dialReal(host),
		CountReals: countReals(host),
		Gateway:    gateway,
		Containers: sandbox.New(), Lasting: files.Lasting(), Passing: files.Passing(),
	})
	if err != nil {
		return err
	}
	defer closing(func() error { gateway.Part(); return nil })
	node, err := newNode(opt, host, d, idle, certificates)
	if err != nil {
		return err
	}
	adopt(node)
	defer closing(func() error { return node.end(opt.TearDown) })
	idle.empty = func() bool { return d.Empty() && !node.Joined() }
	defer closing(func() error {
		if !d.Empty() {
			return nil
		}
		return proxies.removeEmpty()
	})
	names := new(sandbox.EndpointNames)
	opt.docker, opt.follow = dockerDriver(d, files, host, node, names, opt), dockerTasks(d, files, names, opt)
	defer closing(gauge.show(d, node, opt))
	defer closing(window.show(opt, pins, d.Note))
	if err := serve(ctx, opt, d, gateway, node, idle); err != nil || !opt.TearDown {
		return err
	}
	return d.TearDown(context.Background())
}

// serve answers requests and runs the daemon's tasks until ctx ends, the daemon is
// idle, or a task fails.
func serve(ctx context.Context, opt Options, d *daemon.Daemon, gateway *hosted.Runner, node *node,
	idle *idle) error {
	l, done, err := opt.Sockets.take(adminSocket, opt.Socket, admin.Listen)
	if err != nil {
		return err
	}
	defer done()
	charts := history.New(history.Host())
	calls := admin.Daemon{Attachments: attachments{d, node.networks}, Publishes: d, Networks: d,
		Services: virtualServices{d, node.agreement, node.services},
		Specs:    specs{d, node.addresses, node.networks, node.services, node.gateways},
		Events:   d, Stats: d, History: charts, Gateway: gateway, Cluster: node, ClusterTokens: node,
		ClusterNetworks:  node.networks,
		ClusterAddresses: node.addresses, ClusterBGP: node.bgp,
		ClusterServices: node.services}
	follow := func(ctx context.Context) error { gateway.Follow(ctx); return nil }
	count := func(ctx context.Context) error { charts.Run(ctx, counting{d, gateway}.values); return nil }
	tasks := []func(context.Context) error{d.Run, follow, node.run, count,
		serving(l, idle.handler(admin.Handler(calls)), admin.ConnsPerPeer)}
	if opt.Docker != "" || opt.Sockets[dockerSocket] != nil {
		l, done, err := opt.Sockets.take(dockerSocket, opt.Docker, listenDocker)
		if err != nil {
			return err
		}
		defer done()
		tasks = append(append(tasks, serving(l, idle.handler(opt.docker), admin.MaxConns)), opt.follow...)
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
		opt.Log.Info("stop because nothing is attached any more")
	case <-ctx.Done():
	}
	_ = notify("STOPPING=1") // optional
	cancel()
	for range left {
		err = errors.Join(err, <-results)
	}
	opt.Log.Info("stopped")
	return err
}

// serving returns a task that answers requests on a socket. Each caller can have at
// most perPeer connections. dockerd is the only caller of its socket.
func serving(l *net.UnixListener, h http.Handler, perPeer int) func(context.Context) error {
	return func(ctx context.Context) error { return admin.Serve(ctx, l, h, perPeer) }
}

// MakeDirs creates the daemon's directories, so that files can be created in them
// before the daemon runs. It returns an error for a directory that another user can
// change.
func MakeDirs(opt Options) error {
	for _, dir := range []string{opt.Run, opt.State, filepath.Dir(opt.Socket)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create the daemon's directory: %w", err)
		}
	}
	return errors.Join(checkDir(opt.Run), checkDir(opt.State))
}

// makeDir creates a directory that only its owner can use.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the daemon's directory: %w", err)
	}
	return checkDir(dir)
}

// checkDir returns an error for a directory that another user can change.
func checkDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("check the daemon's directory %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("check the daemon's directory %s: other users can change it: make it accessible to root "+
			"only, or name another directory with --run-dir and --state-dir", dir)
	}
	return nil
}
