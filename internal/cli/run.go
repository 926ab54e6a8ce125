package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"fairlead/internal/frontend/text"
	"fairlead/internal/model"
	"fairlead/internal/workload"

	"github.com/spf13/cobra"
)

// commandExit is the exit code of a command: it becomes ours.
type commandExit struct {
	code int
	// why says why the command was not run; nil when it was.
	why error
}

func (e commandExit) Error() string {
	if e.why != nil {
		return e.why.Error()
	}
	return fmt.Sprintf("the command exited with %d", e.code)
}

// Unwrap returns the reason, so that each of its lines is printed as one.
func (e commandExit) Unwrap() error { return e.why }

// The exit codes of a command that was not run, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// policies are what --unpublished takes.
var policies = []string{string(model.UnpublishedLoopback), string(model.UnpublishedDeny), string(model.UnpublishedAllow)}

func newRun() *cobra.Command {
	var ports []string
	var name, unpublished string
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG…]",
		Short: "Run a command on the host's network with published ports",
		Long: "Run a command in the host's own network namespace, with published ports. It binds\n" +
			"the port that it wants and gets the host port that it was given, so several can\n" +
			"bind port 80 side by side. No packet costs anything: they are the host's own sockets.\n" +
			"What the command binds and --publish does not list is moved to the loopback address.\n\n" +
			"Signals go to the command, and its exit code is ours. When it ends, so does\n" +
			"everything that it has left running.",
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
	f.SetInterspersed(false) // what follows the command is its own
	f.StringArrayVarP(&ports, "publish", "p", nil, "publish a port or a range: [ADDRESS:]HOST:CONTAINER[/tcp|/udp] (repeatable)")
	f.StringVar(&unpublished, "unpublished", string(model.UnpublishedLoopback), "what to do with binds to other ports: "+strings.Join(policies, ", "))
	f.StringVar(&name, "name", "", "name of the workload in messages (default: the command's)")
	// It fails only for a flag that is not there or completes already.
	_ = c.RegisterFlagCompletionFunc("unpublished", cobra.FixedCompletions(policies, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func runOptions(ports []string, name, unpublished string, command []string) (workload.Options, error) {
	opt := workload.Options{Name: name, Unlisted: model.Unpublished(unpublished), Command: command}
	if len(command) == 0 {
		return opt, errors.New("name the command to run after --")
	}
	if len(ports) == 0 {
		return opt, errors.New("publish a port, e.g. -p 8080:80, or run the command without us")
	}
	for _, port := range ports {
		p, err := text.Publish(port)
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

// find returns the command's path, or tells before anything is set up that
// there is no such command.
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
