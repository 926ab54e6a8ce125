// Package cli is the command line: a file a command. A command parses,
// calls, prints; what it does is elsewhere.
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

// The exit codes, for scripts.
const (
	exitOK = 0
	// exitFailed: what was asked for did not succeed, or a threshold of
	// --fail-if was hit.
	exitFailed = 1
	// exitUsage: a mistake in the command, or something this host lacks.
	exitUsage = 2
	// exitSignal, plus the signal's number: interrupted, and tidied up.
	exitSignal = 128
)

// usageError is a mistake of the caller's or a lack of the host's.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage marks an error as the caller's to mend; nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// errThreshold says that a --fail-if condition holds; what it was has been
// printed.
var errThreshold = errors.New("a --fail-if condition holds")

// app is what all commands share.
type app struct {
	version string
	out     printer
	err     printer
	// log is the standard error, for those who escape by themselves.
	log    *os.File
	output string
}

// Main runs the command line and returns the exit code. It catches SIGINT,
// SIGTERM and SIGHUP, so that whatever runs can take down what it built.
func Main(version string, args []string, stdout io.Writer, stderr *os.File) int {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup makes it
		signal.Notify(caught, syscall.SIGHUP)
	}
	defer signal.Stop(caught)
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		if s, ok := (<-caught).(syscall.Signal); ok {
			signal.Stop(caught) // a second one ends us at once
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

// interrupted is the cause of a context that a signal ended.
type interrupted syscall.Signal

func (i interrupted) Error() string { return "interrupted by " + syscall.Signal(i).String() }

// ended says how a command that was interrupted left the host.
func ended(cause, err error) error {
	if exit := (commandExit{}); errors.As(err, &exit) {
		return err // it says so itself
	}
	if errors.Is(err, runner.ErrTakeDown) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("%w: everything is taken down again", cause)
}

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

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "fairlead",
		Short: "Container networking with the price shown",
		Long: "Fairlead leads a container's traffic the cheapest way that keeps what you asked for,\n" +
			"and shows what that way costs.",
		Example: "  fairlead lab run          # what does publishing a port cost on this machine?\n" +
			"  fairlead paths            # which ways there are, and what each promises\n" +
			"  fairlead choose           # which of them is the cheapest that keeps what you ask for\n" +
			"  fairlead run -p 8080:80 -- nginx -g 'daemon off;'   # publish a command's port, at no cost\n" +
			"  fairlead attach web shop  # attach a running container to a network",
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return a.checkOutput(c) },
		Version:           a.version,
	}
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "output: table, json, or markdown where it says so")
	root.SetVersionTemplate(versionLine(a.version))
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newLab(a), newPaths(a), newChoose(a), newRun(), newAttach(a), newDetach(a), newPublish(a), newUnpublish(a),
		newList(a), newNetwork(a), newDaemon(a), newEvents(a), newExec(), newInspect(a), newStats(a), newExplain(a), newPorts(a), newDoctor(a), newVersion(a), newDocs(root))
	root.AddCommand(newPlan(a), newApply(a), newDestroy(a), newGet(a), newService(a))
	root.InitDefaultCompletionCmd()
	requireSubcommands(root)
	return root
}

// checkOutput refuses a format that the command does not have.
func (a *app) checkOutput(c *cobra.Command) error {
	formats := []string{"table", "json"}
	if c.Name() == "paths" {
		formats = append(formats, "markdown")
	}
	if !slices.Contains(formats, a.output) {
		return usage(fmt.Errorf("output %q: %s knows %s", a.output, c.CommandPath(), strings.Join(formats, ", ")))
	}
	return nil
}

// json prints a value for machines.
func (a *app) json(v any) error { return a.out.json(v) }

// arguments turns cobra's argument checks into usage errors that say what is
// wanted.
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
