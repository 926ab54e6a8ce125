package cli

import (
	"errors"
	"os"

	"fairlead/internal/cli/command"
	"fairlead/internal/process"
	"fairlead/internal/store"

	"github.com/spf13/cobra"
)

func newRestore(a *command.App) *cobra.Command {
	var at store.Places
	var dryRun bool
	c := &cobra.Command{
		Use:   "restore",
		Short: "Replace damaged state files with their copies",
		Long: "Replace damaged state files with their copies. The daemon does not start with a damaged file:\n" +
			"it would remove from the host what the file has lost. Beside fairlead.db and boot.db is a copy,\n" +
			"which the daemon writes at its start, 5 seconds after a change, and at its end.\n\n" +
			"The command prints what differs between the damaged file and its copy: a value that\n" +
			"  returns    cannot be read in the damaged file, or was deleted after the copy was written\n" +
			"  reverts    is older in the copy\n" +
			"  vanishes   is newer than the copy\n\n" +
			"It never deletes a damaged file: it renames it to FILE.damaged-TIME. A file that is not damaged\n" +
			"stays as it is. The daemon must not run. Nothing changes on the host until it starts.",
		Example: "  fairlead restore --dry-run   # show what differs\n" +
			"  fairlead restore && systemctl start fairlead",
		Args: command.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("root is needed to read the daemon's files: run as root, e.g. with sudo"))
			}
			all, err := store.Restore(at, dryRun)
			return errors.Join(printRestored(a, all, dryRun), err)
		},
	}
	f := c.Flags()
	f.StringVar(&at.Run, "run-dir", process.RunDir, "directory for the state that is valid until the next reboot")
	f.StringVar(&at.State, "state-dir", process.StateDir, "directory for the state that survives a reboot")
	f.BoolVar(&dryRun, "dry-run", false, "print what differs, and change nothing")
	return c
}

// printRestored prints what was restored, or would be.
func printRestored(a *command.App, all []store.Restored, dryRun bool) error {
	if a.Output == "json" {
		return a.JSON(all)
	}
	for _, r := range all {
		if err := printRestoredFile(a, r, dryRun); err != nil {
			return err
		}
	}
	return nil
}

func printRestoredFile(a *command.App, r store.Restored, dryRun bool) error {
	if r.Damage == "" {
		return a.Out.Line("%s is not damaged", r.Path)
	}
	if err := a.Out.Line("%s: %s", r.Path, r.Damage); err != nil {
		return err
	}
	for _, d := range r.Differences {
		if err := a.Out.Line("  %-8s  %s %s", string(d.Change), d.Table, d.Key); err != nil {
			return err
		}
	}
	written := r.Copied.Format("2006-01-02 15:04:05")
	if dryRun {
		return a.Out.Line("  its copy was written at %s", written)
	}
	if err := a.Out.Line("  restored its copy, which was written at %s", written); err != nil || r.Kept == "" {
		return err
	}
	return a.Out.Line("  the damaged file is now %s", r.Kept)
}
