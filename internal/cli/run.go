package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/syntax"
	"fairlead/internal/workload"

	"github.com/spf13/cobra"
)

// commandExit is an error that sets the exit code of fairlead, e.g. to that of
// the command that `fairlead run` ran.
type commandExit struct {
	code int
	// why is the error to print; nil prints nothing.
	why error
}

func (e commandExit) Error() string {
	if e.why != nil {
		return e.why.Error()
	}
	return fmt.Sprintf("the command exited with %d", e.code)
}

// Unwrap returns the error to print, so that each of its lines is printed.
func (e commandExit) Unwrap() error { return e.why }

// Exit codes of a command that could not be run, as in shells.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// policies are the values of --unpublished.
var policies = []string{string(model.UnpublishedLoopback), string(model.UnpublishedDeny), string(model.UnpublishedAllow)}

func newRun() *cobra.Command {
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
				return usage(err)
			}
			if _, err := find(args[0]); err != nil {
				return err
			}
			code, err := workload.Run(opt)
			if err != nil {
				return err
			}
			return commandExit{code: code}
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
	_ = c.RegisterFlagCompletionFunc("unpublished", cobra.FixedCompletions(policies, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func runOptions(ports []string, name, unpublished string, command []string) (workload.Options, error) {
	opt := workload.Options{Name: name, Unlisted: model.Unpublished(unpublished), Command: command}
	if len(command) == 0 {
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
// returns a commandExit if there is no such command.
func find(command string) (string, error) {
	path, err := exec.LookPath(command)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, fs.ErrPermission):
		return "", commandExit{exitNotExecutable, fmt.Errorf("run %s: %w: make it executable", command, err)}
	}
	return "", commandExit{exitNotFound, fmt.Errorf("run %s: %w: install it, or name its path", command, err)}
}
