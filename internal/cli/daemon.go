package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/frontend/metrics"
	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/process"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

func newDaemon(a *command.App) *cobra.Command {
	var opt process.Options
	var readyFD int
	var xdp, sources string
	var dockerUser bool
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Run the daemon in the foreground",
		Long: "Run the daemon in the foreground. The daemon executes attach, publish, network and service\n" +
			"commands, cleans up after sandboxes that ended, renews DHCP leases, repairs what other\n" +
			"programs change, and applies kept attachments again. If no daemon runs, commands that\n" +
			"change something start one in the background.\n\n" +
			"If the daemon ends, by SIGTERM or by a crash, traffic continues, and the next daemon takes\n" +
			"over. A separate process serves the ports that are published via proxy, and continues too.\n" +
			"Networks, services and kept attachments survive a reboot in the directory --state-dir.",
		Example: "  fairlead daemon\n" +
			"  fairlead daemon --metrics unix:/run/fairlead/metrics.sock\n" +
			"  fairlead daemon --dashboard unix:/run/fairlead/dashboard.sock\n" +
			"  fairlead daemon --teardown    # remove everything from the host when stopped",
		Args: command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("root is needed to change the host's network: run as root, e.g. with sudo"))
			}
			if err := metrics.Check(opt.Metrics, opt.MetricsGroup); err != nil {
				return command.Usage(err)
			}
			if err := opt.Dashboard.Check(); err != nil {
				return command.Usage(err)
			}
			var err error
			if opt.XDP, err = datapath.ParseXDP(xdp); err != nil {
				return command.Usage(fmt.Errorf("--%w", err))
			}
			opt.LeaveDocker = !dockerUser
			if opt.LooseSources, err = parseSourceCheck(sources); err != nil {
				return command.Usage(err)
			}
			opt.Version = a.Version
			opt.Log = process.Logger(a.Log)
			slog.SetDefault(opt.Log) // for the stacks of objects that panic
			if opt.Sockets, err = process.Inherited(); err != nil {
				return err
			}
			unix.Umask(0o077)
			if readyFD >= 0 {
				if err := process.CloseInherited(readyFD); err != nil {
					return err
				}
				unix.CloseOnExec(readyFD) // the proxy must not inherit it
				opt.Ready = func() {
					if err := process.ReportReady(readyFD); err != nil {
						opt.Log.Warn("report that the daemon is ready", "error", err)
					}
				}
			}
			opt.NoDocker = c.Flags().Changed("docker-socket") && opt.Docker == ""
			if !c.Flags().Changed("docker-socket") && opt.Socket == admin.Socket && !opt.IdleExit {
				opt.Docker = docker.Socket
			}
			if err := process.MakeDirs(opt); err != nil {
				return err
			}
			if err := process.Run(c.Context(), opt); err != nil {
				return fmt.Errorf("run the daemon: %w", err)
			}
			return command.Exit{Code: command.ExitOK} // a signal is the normal end
		},
	}
	f := c.Flags()
	f.StringVar(&opt.Run, "run-dir", process.RunDir, "directory for the state that is valid until the next reboot")
	f.StringVar(&opt.State, "state-dir", process.StateDir, "directory for the state that survives a reboot")
	f.StringVar(&opt.Socket, "socket", admin.Socket, "unix socket to listen on")
	f.StringVar(&opt.Docker, "docker-socket", "", "unix socket for the calls of a Docker engine; empty: none (default "+
		docker.Socket+"\nif --socket is the default and --idle-exit is not given; in other cases the last socket,\n"+
		"as long as there are networks of Docker)")
	f.StringVar(&opt.Metrics, "metrics", "", "where to serve metrics for Prometheus: unix:PATH, or a loopback\n"+
		"address such as 127.0.0.1:9464 (default: nowhere)")
	f.StringVar(&opt.MetricsGroup, "metrics-group", "",
		"group that may read the unix socket of --metrics, in addition "+
			"to root;\nthe group needs access to the socket's directory (/run/fairlead is for root only)")
	dashboardFlags(f, &opt.Dashboard)
	f.StringVar(&xdp, "xdp", string(datapath.XDPAuto),
		"uplinks that forward packets of direct and tunnel services in XDP:\n"+
			"auto (physical network cards), always (all whose driver supports it), or never")
	f.BoolVar(&dockerUser, "docker-user", true,
		"if Docker drops forwarded packets, accept those of Fairlead's networks\n"+
			"in Docker's chain DOCKER-USER")
	f.StringVar(&sources, "source-check", sourcesStrict, "which clients reach ports published via ebpf: strict "+
		"(packets must arrive on\nthe link that the host uses to reply), or loose (packets may arrive on any uplink;\n"+
		"for hosts with asymmetric routes). With strict, packets of a client behind a\n"+
		"multipath route may arrive on each of its links")
	f.BoolVar(&opt.TearDown, "teardown", false, "remove everything from the host when stopped")
	f.BoolVar(&opt.IdleExit, "idle-exit", false, "end when nothing is attached")
	f.IntVar(&readyFD, "ready-fd", -1, "file descriptor on which to report that the daemon is ready")
	_ = f.MarkHidden("ready-fd") // fails only for an unknown flag
	return c
}

// dashboardFlags adds the flags of the dashboard.
func dashboardFlags(f *pflag.FlagSet, d *process.Dashboard) {
	f.StringVar(&d.Address, "dashboard", "", "where to serve the dashboard: unix:PATH, or an address and port for TLS 1.3\n"+
		"such as 192.0.2.1:9443 (default: nowhere)")
	f.StringVar(&d.Group, "dashboard-group", "", "group that may use the unix socket of --dashboard, in addition to "+
		"root;\nthe group needs access to the socket's directory")
	f.StringVar(&d.Certificate, "dashboard-cert", "", "`file` with the certificate of this host for --dashboard, in "+
		"PEM;\nbrowsers must use a name or address that it contains")
	f.StringVar(&d.Key, "dashboard-key", "", "`file` with the private key of --dashboard-cert, in PEM")
	f.StringVar(&d.ClientCA, "dashboard-client-ca", "", "`file` with the authorities whose clients may look, in PEM")
	f.StringVar(&d.Tokens, "dashboard-tokens", "", "`file` with the hashes of tokens that may look "+
		"(fairlead dashboard --add-token);\nwith --dashboard-client-ca, clients need a certificate and a token")
	f.BoolVar(&d.Actions, "dashboard-actions", false, "add buttons to the dashboard that drain and enable real servers "+
		"and move\naddresses")
}

// The values of --source-check.
const (
	sourcesStrict = "strict"
	sourcesLoose  = "loose"
)

// parseSourceCheck parses --source-check and reports whether it is loose.
func parseSourceCheck(s string) (loose bool, err error) {
	if s != sourcesStrict && s != sourcesLoose {
		return false, fmt.Errorf("--source-check %q: want %s or %s", s, sourcesStrict, sourcesLoose)
	}
	return s == sourcesLoose, nil
}
