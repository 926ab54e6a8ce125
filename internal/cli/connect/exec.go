package connect

import (
	"errors"
	"fmt"
	"os"

	"fairlead/internal/cli/command"
	"fairlead/internal/sandbox"

	"github.com/spf13/cobra"
)

// sandboxHelp describes the argument SANDBOX.
const sandboxHelp = "SANDBOX is a container's name or ID, a name that `ip netns` lists, a PID, or the path of a\n" +
	"network namespace. If a name is ambiguous, add a prefix: container:web, netns:web."

// NewExec returns the command `fairlead exec`.
func NewExec() *cobra.Command {
	c := &cobra.Command{
		Use:   "exec SANDBOX -- COMMAND [ARG…]",
		Short: "Run a command of the host in a sandbox's network namespace",
		Long: "Run a command in a sandbox's network namespace. The command and its files are those of the\n" +
			"host, so a container needs no tools for its inspection. Only /sys shows the sandbox's\n" +
			"devices.\n\n" + sandboxHelp + "\n\n" +
			"The command replaces the process of fairlead: it gets the signals, and its exit code is\n" +
			"returned. No daemon is needed.",
		Example: "  fairlead exec web -- ip address\n" +
			"  fairlead exec container:web -- tcpdump -ni eth0\n" +
			"  fairlead exec 4711 -- ss -ltnp\n" +
			"  fairlead exec /run/netns/web -- sh",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 && args[1] == "--" {
				args = append(args[:1:1], args[2:]...)
			}
			if len(args) < 2 {
				return command.Usage(errors.New("sandbox or command missing: name the sandbox and, after --, the command to " +
					"run in it"))
			}
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("root is needed to enter a network namespace: run as root, e.g. with sudo"))
			}
			return execIn(c, args[0], args[1:])
		},
	}
	c.Flags().SetInterspersed(false) // flags after the sandbox belong to the command
	return c
}

// execIn replaces this process with the command. It returns only after a failure.
func execIn(c *cobra.Command, text string, argv []string) error {
	path, err := find(argv[0])
	if err != nil {
		return err
	}
	s, err := sandbox.Resolve(c.Context(), text)
	if errors.Is(err, sandbox.ErrHost) {
		return command.Usage(fmt.Errorf("run a command in %s: %w: run it without fairlead exec", text, sandbox.ErrHost))
	}
	if err != nil {
		return err
	}
	err = s.Exec(path, argv, os.Environ())
	if refused := (*os.PathError)(nil); errors.As(err, &refused) && refused.Op == "exec" {
		return command.Exit{Code: exitNotExecutable, Why: err}
	}
	return err
}
