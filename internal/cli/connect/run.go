package connect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/model"
	"fairlead/internal/syntax"
	"fairlead/internal/workload"

	"github.com/spf13/cobra"
)

// Exit codes of a command that could not be run, as in shells.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// policies are the values of --unpublished.
var policies = []string{string(model.UnpublishedLoopback), string(model.UnpublishedDeny),
	string(model.UnpublishedAllow)}

// NewRun returns the command `fairlead run`.
func NewRun() *cobra.Command {
	var ports []string
	var name, unpublished string
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG…]",
		Short: "Run a command on the host's network with published ports",
		Long: "Run a command in the host's network namespace, with published ports. When the command binds\n" +
			"the container port, it gets the host port of --publish, so several commands can bind port 80\n" +
			"at the same time. There is no cost per packet: the sockets are the host's own. By default,\n" +
			"binds to ports that --publish does not list are moved to the loopback address.\n\n" +
			"Signals are passed to the command, and its exit code is returned. When it ends, all\n" +
			"processes that it started are ended.",
		Example: "  fairlead run -p 8080:80 -- nginx -g 'daemon off;'\n" +
			"  fairlead run -p 127.0.0.1:5353:53/udp -p 127.0.0.1:5353:53 -- dnsmasq --keep-in-foreground\n" +
			"  fairlead run -p '[::]:9000-9010:8000-8010' --unpublished deny -- ./server",
		RunE: func(_ *cobra.Command, args []string) error {
			opt, err := runOptions(ports, name, unpublished, args)
			if err != nil {
				return command.Usage(err)
			}
			if _, err := find(args[0]); err != nil {
				return err
			}
			code, err := workload.Run(opt)
			if err != nil {
				return err
			}
			return command.Exit{Code: code}
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // arguments after the command belong to it
	f.StringArrayVarP(&ports, "publish", "p", nil, "port or range to publish: [ADDRESS:]HOST:CONTAINER[/tcp|/udp] "+
		"(repeatable)")
	f.StringVar(&unpublished, "unpublished", string(model.UnpublishedLoopback),
		"policy for binds to other ports: "+strings.Join(policies, ", "))
	f.StringVar(&name, "name", "", "name of the workload in messages (default: the command's name)")
	// It fails only for an unknown flag or one that has a completion already.
	_ = c.RegisterFlagCompletionFunc("unpublished",
		cobra.FixedCompletions(policies, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func runOptions(ports []string, name, unpublished string, argv []string) (workload.Options, error) {
	opt := workload.Options{Name: name, Unlisted: model.Unpublished(unpublished), Command: argv}
	if len(argv) == 0 {
		return opt, errors.New("no command given: name the command to run after --")
	}
	if len(ports) == 0 {
		return opt, errors.New("no port given: publish one, e.g. -p 8080:80, or run the command without fairlead")
	}
	for _, port := range ports {
		p, err := syntax.Publish(port)
		if err != nil {
			return opt, fmt.Errorf("publish %s: %w", port, err)
		}
		opt.Publishes = append(opt.Publishes, p)
	}
	if err := opt.Validate(); err != nil {
		return opt, err
	}
	if os.Geteuid() != 0 {
		return opt, errors.New("root is needed to attach eBPF programs: run as root, e.g. with sudo")
	}
	return opt, nil
}

// find returns the command's path. It is called before anything is set up, and
// returns a command.Exit if there is no such command.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, fs.ErrPermission):
		return "", command.Exit{Code: exitNotExecutable, Why: fmt.Errorf("run %s: %w: make it executable", name, err)}
	}
	return "", command.Exit{Code: exitNotFound, Why: fmt.Errorf("run %s: %w: install it, or name its path", name, err)}
}
