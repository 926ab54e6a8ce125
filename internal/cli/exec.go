package cli

import (
	"errors"
	"fmt"
	"os"

	"fairlead/internal/sandbox"

	"github.com/spf13/cobra"
)

// sandboxHelp says how a sandbox is named.
const sandboxHelp = "SANDBOX is a container's name or id, a name that `ip netns` lists, a pid, or the path\n" +
	"of a network namespace. Where two have one name, say which: container:web, netns:web."

func newExec() *cobra.Command {
	c := &cobra.Command{
		Use:   "exec SANDBOX -- COMMAND [ARG…]",
		Short: "Run a command of the host's in a sandbox's network namespace",
		Long: "Run a command in a sandbox's network namespace. The command and its files are the\n" +
			"host's, so a container needs no tools of its own to be looked into. Only /sys shows\n" +
			"the sandbox's devices.\n\n" + sandboxHelp + "\n\n" +
			"The command takes our place: signals and the exit code are its own. No daemon is\n" +
			"needed.",
		Example: "  fairlead exec web -- ip address\n" +
			"  fairlead exec container:web -- tcpdump -ni eth0\n" +
			"  fairlead exec 4711 -- ss -ltnp\n" +
			"  fairlead exec /run/netns/web -- sh",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 && args[1] == "--" {
				args = append(args[:1:1], args[2:]...)
			}
			if len(args) < 2 {
				return usage(errors.New("name the sandbox and, after --, the command to run in it"))
			}
			if os.Geteuid() != 0 {
				return usage(errors.New("root is needed to enter a network namespace: run as root, e.g. with sudo"))
			}
			return execIn(c, args[0], args[1:])
		},
	}
	c.Flags().SetInterspersed(false) // what follows the sandbox is the command's
	return c
}

// execIn replaces us by the command; it returns only when that fails.
func execIn(c *cobra.Command, text string, command []string) error {
	path, err := find(command[0])
	if err != nil {
		return err
	}
	s, err := sandbox.Resolve(c.Context(), text)
	if errors.Is(err, sandbox.ErrHost) {
		return usage(fmt.Errorf("run a command in %s: %w: run it without us", text, sandbox.ErrHost))
	}
	if err != nil {
		return err
	}
	err = s.Exec(path, command, os.Environ())
	if refused := (*os.PathError)(nil); errors.As(err, &refused) && refused.Op == "exec" {
		return commandExit{exitNotExecutable, err}
	}
	return err
}
