// Package cli is the command line: it assembles the commands, which have one package
// per group of the help and one file each. A command parses its arguments, calls
// another package and prints the result.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"fairlead/internal/cli/balance"
	"fairlead/internal/cli/cluster"
	"fairlead/internal/cli/command"
	"fairlead/internal/cli/connect"
	"fairlead/internal/cli/declare"
	"fairlead/internal/cli/explain"
	"fairlead/internal/cli/measure"
	"fairlead/internal/escape"
	"fairlead/internal/lab/runner"

	"github.com/spf13/cobra"
)

// Build identifies the sources of the program.
type Build = command.Build

// Main runs the command line and returns the exit code. It catches SIGINT,
// SIGTERM and SIGHUP and cancels the command's context, so that the command can
// remove what it created. A second signal ends the process at once. SIGINT is ignored
// while an editor runs.
func Main(build Build, args []string, stdout io.Writer, stderr *os.File) int {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(caught, syscall.SIGHUP)
	}
	defer signal.Stop(caught)
	ctx, cancel := context.WithCancelCause(context.Background())
	app := &command.App{Build: build, Out: command.NewPrinter(stdout), Err: command.NewPrinter(stderr), Log: stderr}
	go func() {
		for s := range caught {
			if s == syscall.SIGINT && app.EditorRuns.Load() {
				continue
			}
			signal.Stop(caught) // a second signal ends the process at once
			cancel(command.Interrupted(s.(syscall.Signal)))
			return
		}
	}()
	root := newRoot(app)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		complete(root)
	}
	root.SetArgs(args)
	root.SetOut(escape.Writer(stdout))
	root.SetErr(escape.Writer(stderr))
	err := root.ExecuteContext(ctx)
	if exit := (command.Exit{}); errors.As(err, &exit) && exit.Why == nil {
		return exit.Code
	}
	if ctx.Err() != nil {
		err = ended(context.Cause(ctx), err)
	}
	return exitCode(err, stderr)
}

// ended returns the error of an interrupted command. Its text reports whether the
// command removed what it had created on the host.
func ended(cause, err error) error {
	if exit := (command.Exit{}); errors.As(err, &exit) {
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
		return command.ExitOK
	}
	command.NewPrinter(stderr).Error(err)
	var sig command.Interrupted
	var mistake command.UsageError
	var exit command.Exit
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &sig):
		return command.ExitSignal + int(sig)
	case errors.As(err, &mistake):
		return command.ExitUsage
	default:
		return command.ExitFailed
	}
}

// The groups of commands in the help of the root command.
const (
	groupMeasure = "measure"
	groupConnect = "connect"
	groupBalance = "balance"
	groupCluster = "cluster"
	groupExplain = "explain"
	groupDeclare = "declare"
	groupDaemon  = "daemon"
)

func newRoot(a *command.App) *cobra.Command {
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
		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return a.CheckOutput(c) },
		Version:           a.Version,
	}
	root.PersistentFlags().StringVarP(&a.Output, "output", "o", "table", "output format: table or json")
	root.SetVersionTemplate(versionLine(a.Build))
	root.SetFlagErrorFunc(flagError)
	addGroup(root, groupMeasure, "Measure paths and choose among them:", measure.NewLab(a), measure.NewPaths(a),
		measure.NewChoose(a))
	addGroup(root, groupConnect, "Connect and publish:", connect.NewNetwork(a), connect.NewAttach(a),
		connect.NewDetach(a), connect.NewPublish(a), connect.NewUnpublish(a), connect.NewRun(), connect.NewExec(),
		connect.NewList(a), connect.NewInspect(a))
	addGroup(root, groupBalance, "Balance:", balance.NewService(a), balance.NewGateway(a))
	addGroup(root, groupCluster, "Make several hosts one:", cluster.New(a))
	addGroup(root, groupExplain, "Explain and diagnose:", explain.NewPorts(a), explain.NewExplain(a),
		explain.NewDoctor(a), explain.NewStats(a), explain.NewEvents(a), explain.NewDashboard(a),
		explain.NewBugreport(a))
	addGroup(root, groupDeclare, "Declare in files:", declare.NewPlan(a), declare.NewApply(a), declare.NewGet(a),
		declare.NewEdit(a), declare.NewDestroy(a), declare.NewSchema(a))
	addGroup(root, groupDaemon, "Run the daemon:", newDaemon(a), newRestore(a), newUninstall(a))
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
