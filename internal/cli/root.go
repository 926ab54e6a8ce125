// Package cli is the command line, with one file per command. A command parses
// its arguments, calls another package and prints the result.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"fairlead/internal/escape"
	"fairlead/internal/lab/runner"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitOK = 0
	// exitFailed means that the command failed, or that a --fail-if condition
	// holds.
	exitFailed = 1
	// exitUsage means that the command line is wrong, or that the host lacks
	// something that the command needs.
	exitUsage = 2
	// exitSignal plus the signal's number means that a signal ended the command.
	exitSignal = 128
)

// usageError is an error that the caller can correct: a mistake in the command
// line, or something that the host lacks.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage marks an error as one that the caller can correct; nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// errThreshold reports that a --fail-if condition holds. The condition has been
// printed before.
var errThreshold = errors.New("a --fail-if condition holds")

// app holds what all commands share.
type app struct {
	version string
	out     printer
	err     printer
	// log is the standard error for writers that escape their output themselves.
	log    *os.File
	output string
}

// Main runs the command line and returns the exit code. It catches SIGINT,
// SIGTERM and SIGHUP and cancels the command's context, so that the command can
// remove what it created. A second signal ends the process at once.
func Main(version string, args []string, stdout io.Writer, stderr *os.File) int {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(caught, syscall.SIGHUP)
	}
	defer signal.Stop(caught)
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		if s, ok := (<-caught).(syscall.Signal); ok {
			signal.Stop(caught) // a second signal ends the process at once
			cancel(interrupted(s))
		}
	}()
	root := newRoot(&app{version: version, out: printer{stdout}, err: printer{stderr}, log: stderr})
	root.SetArgs(args)
	root.SetOut(escape.Writer(stdout))
	root.SetErr(escape.Writer(stderr))
	err := root.ExecuteContext(ctx)
	if exit := (commandExit{}); errors.As(err, &exit) && exit.why == nil {
		return exit.code
	}
	if ctx.Err() != nil {
		err = ended(context.Cause(ctx), err)
	}
	return exitCode(err, stderr)
}

// interrupted is the cause of a context that a signal cancelled.
type interrupted syscall.Signal

func (i interrupted) Error() string { return "interrupted by " + syscall.Signal(i).String() }

// ended returns the error of an interrupted command. Its text reports whether the
// command removed what it had created on the host.
func ended(cause, err error) error {
	if exit := (commandExit{}); errors.As(err, &exit) {
		return err // it has its own text
	}
	if errors.Is(err, runner.ErrTakeDown) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("%w: everything that the command created was removed", cause)
}

// exitCode prints the error, if there is one, and returns its exit code.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	printer{stderr}.error(err)
	var sig interrupted
	var mistake usageError
	var exit commandExit
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &sig):
		return exitSignal + int(sig)
	case errors.As(err, &mistake):
		return exitUsage
	default:
		return exitFailed
	}
}

// The groups of commands in the help of the root command.
const (
	groupMeasure = "measure"
	groupConnect = "connect"
	groupBalance = "balance"
	groupExplain = "explain"
	groupDeclare = "declare"
	groupDaemon  = "daemon"
)

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "fairlead",
		Short: "Container networking with measured costs",
		Long: "Fairlead connects containers to networks, publishes their ports and balances services\n" +
			"on Linux hosts. It publishes a port in the cheapest mode that keeps the promises you ask\n" +
			"for, and measures what each mode costs.",
		Example: "  fairlead lab run          # measure what publishing a port costs on this machine\n" +
			"  fairlead paths            # show all paths and what each promises\n" +
			"  fairlead choose           # show the cheapest publish mode that keeps your promises\n" +
			"  fairlead run -p 8080:80 -- nginx -g 'daemon off;'   # publish a command's port at no cost\n" +
			"  fairlead attach web shop  # attach the running container shop to the network web",
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return a.checkOutput(c) },
		Version:           a.version,
	}
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "output format: table or json; also "+
		"markdown for fairlead paths")
	root.SetVersionTemplate(versionLine(a.version))
	root.SetFlagErrorFunc(flagError)
	addGroup(root, groupMeasure, "Measure paths and choose among them:", newLab(a), newPaths(a), newChoose(a))
	addGroup(root, groupConnect, "Connect and publish:", newNetwork(a), newAttach(a), newDetach(a), newPublish(a),
		newUnpublish(a),
		newRun(), newExec(), newList(a), newInspect(a))
	addGroup(root, groupBalance, "Balance:", newService(a))
	addGroup(root, groupExplain, "Explain and diagnose:", newPorts(a), newExplain(a), newDoctor(a), newStats(a),
		newEvents(a))
	addGroup(root, groupDeclare, "Declare in files:", newPlan(a), newApply(a), newGet(a), newDestroy(a))
	addGroup(root, groupDaemon, "Run the daemon:", newDaemon(a))
	root.AddCommand(newVersion(a), newDocs(root))
	root.InitDefaultCompletionCmd()
	initHelpCommand(root)
	requireSubcommands(root)
	return root
}

// addGroup adds commands to the root command. Its help lists them under title.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range commands {
		c.GroupID = id
		root.AddCommand(c)
	}
}

// checkOutput returns a usage error if the command does not support the format
// of --output.
func (a *app) checkOutput(c *cobra.Command) error {
	formats := []string{"table", "json"}
	if c.Name() == "paths" {
		formats = append(formats, "markdown")
	}
	if !slices.Contains(formats, a.output) {
		return usage(fmt.Errorf("output %q: %s supports %s", a.output, c.CommandPath(), strings.Join(formats, ", ")))
	}
	return nil
}

// json prints a value as JSON.
func (a *app) json(v any) error { return a.out.json(v) }

// arguments turns an argument check of cobra into a usage error that shows the
// expected arguments.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check(c, args) == nil {
			return nil
		}
		got := fmt.Sprintf("%d arguments", len(args))
		if len(args) == 1 {
			got = "1 argument"
		}
		return usage(fmt.Errorf("%s: want %s", got, c.UseLine()))
	}
}
