// Package command has what the commands of all groups share: the command line's
// state, output, errors and exit codes, and the calls of the daemon.
package command

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
)

// Build identifies the sources of the program.
type Build struct{ Version, Commit string }

// App holds what all commands share.
type App struct {
	Build
	Out Printer
	Err Printer
	// Log is the standard error for writers that escape their output themselves.
	Log    *os.File
	Output string
	// EditorRuns is true while an editor has the terminal. SIGINT is for the editor then.
	EditorRuns atomic.Bool
}

// CheckOutput returns a usage error if the command does not support the format
// of --output.
func (a *App) CheckOutput(c *cobra.Command) error {
	if all := formats(c); !slices.Contains(all, a.Output) {
		return Usage(fmt.Errorf("output %q: %s supports %s", a.Output, c.CommandPath(), strings.Join(all, ", ")))
	}
	return nil
}

// formats returns the formats of --output that a command supports.
func formats(c *cobra.Command) []string {
	if c.Name() == "paths" {
		return []string{"table", "json", "markdown"}
	}
	return []string{"table", "json"}
}

// JSON prints a value as JSON.
func (a *App) JSON(v any) error { return a.Out.JSON(v) }

// Tabled prints rows as a table.
func (a *App) Tabled(rows [][]string) error {
	return a.Out.Table(rows)
}

// Arguments turns an argument check of cobra into a usage error that shows the
// expected arguments.
func Arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check(c, args) == nil {
			return nil
		}
		got := fmt.Sprintf("%d arguments", len(args))
		if len(args) == 1 {
			got = "1 argument"
		}
		return Usage(fmt.Errorf("%s: want %s", got, c.UseLine()))
	}
}
