package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/process"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func newUninstall(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var opt process.Options
	var dryRun, yes, keep bool
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove everything of Fairlead from the host's network",
		Long: "Remove everything of Fairlead from the host's network: end the daemon, and remove all objects in\n" +
			"the kernel that have Fairlead's mark, and the daemon's directories. Sandboxes lose their networks.\n" +
			"Packages call it with --keep-state before they remove the program, and a later installation\n" +
			"restores what is declared. The binary, man pages and units stay.\n\n" +
			"A host leaves its cluster with `fairlead cluster leave` before.",
		Example: "  fairlead uninstall --dry-run   # print what would be removed\n" +
			"  fairlead uninstall --yes",
		Args: command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if dryRun == yes {
				return command.Usage(errors.New("say --dry-run to print what is removed, or --yes to remove it"))
			}
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("root is needed to change the host's network: run as root, e.g. with sudo"))
			}
			unix.Umask(0o077)
			beside := process.Beside(r.Socket, admin.Socket)
			opt.Run, opt.State = cmp.Or(opt.Run, beside.Run), cmp.Or(opt.State, beside.State)
			opt.Socket = r.Socket
			found, err := process.FindInstalled(c.Context(), opt, keep)
			if err != nil {
				return err
			}
			if yes {
				opt.Version, opt.Log = a.Version, process.Logger(a.Log)
				if err := process.Uninstall(c.Context(), opt, keep); err != nil {
					return err
				}
			}
			return printInstalled(a, found)
		},
	}
	r.Flags(c)
	f := c.Flags()
	f.BoolVar(&dryRun, "dry-run", false, "print what would be removed, and change nothing")
	f.BoolVar(&yes, "yes", false, "remove it")
	f.BoolVar(&keep, "keep-state", false, "keep the state directory: the next daemon restores what is declared")
	f.StringVar(&opt.Run, "run-dir", "", "directory for the state that is valid until the next reboot (default\n"+
		process.RunDir+", or with --socket: run beside it)")
	f.StringVar(&opt.State, "state-dir", "", "directory for the state that survives a reboot (default\n"+
		process.StateDir+", or with --socket: state beside it)")
	return c
}

// printInstalled prints what was removed, or would be.
func printInstalled(a *command.App, found process.Installed) error {
	if len(found.DockerNetworks) > 0 {
		a.Err.Note("fairlead: Docker keeps its networks with the driver fairlead: remove them with `docker network rm %s`",
			strings.Join(found.DockerNetworks, " "))
	}
	if a.Output == "json" {
		return a.JSON(found)
	}
	var lines []string
	if len(found.Units) > 0 {
		lines = append(lines, "systemctl disable --now "+strings.Join(found.Units, " "))
	} else if found.Daemon != 0 {
		lines = append(lines, fmt.Sprintf("kill %d", found.Daemon))
	}
	lines = append(lines, found.Commands...)
	for _, dir := range found.Directories {
		lines = append(lines, "rm -r "+dir)
	}
	if len(lines) == 0 {
		return a.Out.Line("# nothing of Fairlead is here")
	}
	return a.Out.Lines(lines...)
}
