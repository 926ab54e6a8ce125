package cli

import (
	"errors"
	"fmt"
	"os"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/frontend/metrics"
	"fairlead/internal/frontend/service"
	"fairlead/internal/kernel"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func newDaemon(a *app) *cobra.Command {
	var opt service.Options
	var readyFD int
	var xdp, sources string
	var dockerUser bool
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Run the daemon that holds attachments, in the foreground",
		Long: "Run the daemon behind attach, publish and network, in the foreground: it takes away\n" +
			"what belonged to sandboxes that are gone, renews leases, and applies kept attachments\n" +
			"again. Those commands start one in the background when none runs.\n\n" +
			"SIGTERM ends it and leaves the traffic as it is, and so does its death; the next one\n" +
			"takes over. The proxy for ports that are published via proxy is a process of its own,\n" +
			"which goes on meanwhile. Networks and kept attachments outlive a reboot, in --state.",
		Example: "  fairlead daemon\n" +
			"  fairlead daemon --metrics unix:/run/fairlead/metrics.sock\n" +
			"  fairlead daemon --teardown    # leave nothing behind when it is stopped",
		Args: arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return usage(errors.New("root is needed to change the host's network: run as root, e.g. with sudo"))
			}
			if err := metrics.Check(opt.Metrics, opt.MetricsGroup); err != nil {
				return usage(err)
			}
			var err error
			if opt.XDP, err = kernel.ParseXDP(xdp); err != nil {
				return usage(fmt.Errorf("--%w", err))
			}
			opt.LeaveDocker = !dockerUser
			if opt.LooseSources, err = parseSourceCheck(sources); err != nil {
				return usage(err)
			}
			opt.Version = a.version
			opt.Log = service.Logger(a.log)
			if opt.Sockets, err = service.Inherited(); err != nil {
				return err
			}
			unix.Umask(0o077)
			if readyFD >= 0 {
				if err := service.CloseInherited(readyFD); err != nil {
					return err
				}
				unix.CloseOnExec(readyFD) // the proxy must not hold it
				opt.Ready = func() {
					if err := service.SayReady(readyFD); err != nil {
						opt.Log.Warn("say that the daemon is ready", "error", err)
					}
				}
			}
			opt.NoDocker = c.Flags().Changed("docker-socket") && opt.Docker == ""
			if !c.Flags().Changed("docker-socket") && opt.Socket == admin.Socket && !opt.IdleExit {
				opt.Docker = docker.Socket
			}
			if err := service.MakeDirs(opt); err != nil {
				return err
			}
			if err := service.Run(c.Context(), opt); err != nil {
				return fmt.Errorf("run the daemon: %w", err)
			}
			return commandExit{code: exitOK} // that a signal ended it is well
		},
	}
	f := c.Flags()
	f.StringVar(&opt.Run, "run-dir", service.RunDir, "directory for what a reboot ends")
	f.StringVar(&opt.State, "state-dir", service.StateDir, "directory for what outlives a reboot")
	f.StringVar(&opt.Socket, "socket", admin.Socket, "unix socket to listen on")
	f.StringVar(&opt.Docker, "docker-socket", "", "unix socket for a Docker engine's calls (default "+docker.Socket+
		"\nfor the daemon at the default --socket, unless --idle-exit; else the last one while there are\nnetworks of Docker's; empty: none)")
	f.StringVar(&opt.Metrics, "metrics", "", "where to show metrics for Prometheus: unix:PATH, or a loopback\naddress such as 127.0.0.1:9464")
	f.StringVar(&opt.MetricsGroup, "metrics-group", "", "group that may read a unix socket of --metrics beside root;\nit must be able to enter the directory, which is not so of /run/fairlead")
	f.StringVar(&xdp, "xdp", string(kernel.XDPAuto), "links whose drivers send packets of direct and tunnel services on\nby themselves: auto (network cards), always, or never")
	f.BoolVar(&dockerUser, "docker-user", true, "where Docker drops forwarded packets, accept those of Fairlead's networks\nin Docker's chain DOCKER-USER")
	f.StringVar(&sources, "source-check", sourcesStrict, "which clients reach ports published via ebpf: strict (those whose packets\ncome by the link that the host answers by), or loose (by any uplink,\nfor hosts with asymmetric or multipath routes)")
	f.BoolVar(&opt.TearDown, "teardown", false, "remove everything from the host when stopped")
	f.BoolVar(&opt.IdleExit, "idle-exit", false, "end when nothing is attached")
	f.IntVar(&readyFD, "ready-fd", -1, "file descriptor to say readiness on")
	_ = f.MarkHidden("ready-fd") // it is there
	return c
}

// The values of --source-check.
const (
	sourcesStrict = "strict"
	sourcesLoose  = "loose"
)

// parseSourceCheck reports whether sources are checked loosely.
func parseSourceCheck(s string) (loose bool, err error) {
	if s != sourcesStrict && s != sourcesLoose {
		return false, fmt.Errorf("--source-check %q: want %s or %s", s, sourcesStrict, sourcesLoose)
	}
	return s == sourcesLoose, nil
}
