package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/process"
	"fairlead/internal/store"

	"github.com/spf13/cobra"
)

// socketVariable is the environment variable with the path of the daemon's
// socket. The flag --socket has precedence.
const socketVariable = "FAIRLEAD_SOCKET"

// remote is what the commands that call the daemon share.
type remote struct {
	*app
	socket string
	dryRun bool
}

// flags adds the flags of every command that calls the daemon.
func (r *remote) flags(c *cobra.Command) {
	socket := os.Getenv(socketVariable)
	if socket == "" {
		socket = admin.Socket
	}
	c.Flags().StringVar(&r.socket, "socket", socket,
		"path of the daemon's unix socket; if not given, $"+socketVariable+" if that is set;\na daemon that is "+
			"started for another socket keeps its files in that socket's directory")
	// The generated man page must not depend on the environment.
	c.Flags().Lookup("socket").DefValue = admin.Socket
}

// changes adds the flags of every command that changes something.
func (r *remote) changes(c *cobra.Command) {
	r.flags(c)
	c.Flags().BoolVar(&r.dryRun, "dry-run", false, "print the commands that would be run, and change nothing")
}

// read calls the daemon to read its state. If no daemon runs, it does not start
// one: it calls offline with the stored desired state, and returns an error if
// offline is nil.
func (r *remote) read(ctx context.Context, fn func(*admin.Client) error, offline func(model.Desired) error) error {
	if os.Geteuid() != 0 {
		return usage(errors.New("root is needed to ask the daemon: run as root, e.g. with sudo"))
	}
	err := fn(admin.NewClient(r.socket))
	if !gone(err) {
		return r.failed(ctx, err)
	}
	opt := process.Beside(r.socket, admin.Socket)
	w, failed := store.ReadDesired(store.Places{State: opt.State, Run: opt.Run})
	if inUse := new(store.InUseError); errors.As(failed, &inUse) { // a daemon was started meanwhile
		return r.failed(ctx, fn(admin.NewClient(r.socket)))
	}
	switch {
	case errors.Is(failed, fs.ErrNotExist) && r.socket != admin.Socket:
		return fmt.Errorf("no daemon runs at %s, and there is no stored state in its directory: check --socket",
			r.socket)
	case failed != nil && !errors.Is(failed, fs.ErrNotExist):
		return failed
	case offline == nil:
		return fmt.Errorf("no daemon runs at %s: start it with `systemctl start fairlead` or `fairlead daemon`", r.socket)
	}
	r.notes([]string{fmt.Sprintf("no daemon runs at %s: showing the stored state", r.socket)})
	return offline(w)
}

// call calls the daemon. If no daemon runs, it starts one in the background.
func (r *remote) call(ctx context.Context, fn func(*admin.Client) error) error {
	if os.Geteuid() != 0 {
		return usage(errors.New("root is needed to change the host's network: run as root, e.g. with sudo"))
	}
	client := admin.NewClient(r.socket)
	err := fn(client)
	if gone(err) {
		opt := process.Beside(r.socket, admin.Socket)
		started, failed := process.Start(ctx, opt)
		if failed != nil {
			return failed
		}
		if started {
			r.err.note("fairlead: started a daemon in the background; it ends when nothing is attached (log: %s)",
				process.LogFile(opt))
		}
		err = fn(client)
	}
	return r.failed(ctx, nameContainers(ctx, err))
}

// failed turns the error of a call into the command's error: it handles signals,
// and marks invalid requests as usage errors.
func (r *remote) failed(ctx context.Context, err error) error {
	if exit := (commandExit{}); errors.As(err, &exit) {
		return err // the request only reads
	}
	if sig, ok := context.Cause(ctx).(interrupted); ok && err != nil {
		return commandExit{exitSignal + int(sig), fmt.Errorf("%w: the daemon completes the request that was "+
			"running: see `fairlead ls`", sig)}
	}
	if api.CodeOf(err) == api.Invalid {
		return usage(err)
	}
	return err
}

// gone reports whether no daemon listens, or whether it ended during the call.
// Every request can be repeated then.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}

// print prints the result of a request. It prints line for each attachment of the
// result, and nothing if line is nil.
func (r *remote) print(result api.Result, line func(api.View) string) error {
	r.notes(result.Notes)
	switch {
	case r.output == "json":
		return r.json(result)
	case r.dryRun && result.Plan == "":
		return r.out.line("# nothing to do")
	case r.dryRun:
		return r.printCommands(result.Plan)
	}
	if line == nil {
		return nil
	}
	for _, v := range result.Attachments {
		if err := r.out.line("%s", line(v)); err != nil {
			return err
		}
	}
	return nil
}

// printCommands prints the commands of a plan. The plan has quoted their words.
func (r *remote) printCommands(plan string) error {
	_, err := io.WriteString(r.out.document(), readable(plan))
	return err
}

// notes prints the notes of a result to the standard error.
func (r *remote) notes(notes []string) {
	for _, note := range notes {
		r.err.note("fairlead: %s", note)
	}
}

// completeAttachments completes the first argument with the attachments' names.
func (r *remote) completeAttachments(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	if len(args) == 0 {
		all, err := admin.NewClient(r.socket).Attachments(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, v := range all {
			names = append(names, v.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeNetworks completes the first argument with the networks' names.
func (r *remote) completeNetworks(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []cobra.Completion
	if len(args) == 0 {
		all, err := admin.NewClient(r.socket).Networks(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, n := range all {
			names = append(names, n.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// tabled prints rows as a table.
func (a *app) tabled(rows [][]string) error {
	return a.out.table(rows)
}
