package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/service"
	"fairlead/internal/model"
	"fairlead/internal/store"

	"github.com/spf13/cobra"
)

// socketVariable names the daemon's socket where no flag does.
const socketVariable = "FAIRLEAD_SOCKET"

// remote calls the daemon.
type remote struct {
	*app
	socket string
	dryRun bool
}

// flags adds what every command has that calls the daemon.
func (r *remote) flags(c *cobra.Command) {
	socket := os.Getenv(socketVariable)
	if socket == "" {
		socket = admin.Socket
	}
	c.Flags().StringVar(&r.socket, "socket", socket, "the daemon's socket (default also: $"+socketVariable+"); a daemon that is started for another keeps its files beside it")
	// The page that is generated must not depend on who generates it.
	c.Flags().Lookup("socket").DefValue = admin.Socket
}

// changes adds what every command has that changes something.
func (r *remote) changes(c *cobra.Command) {
	r.flags(c)
	c.Flags().BoolVar(&r.dryRun, "dry-run", false, "print what would be done, as commands, and do nothing")
}

// read calls the daemon. If none runs, it starts none: it answers from what the
// last one has stored if offline can, and fails otherwise.
func (r *remote) read(ctx context.Context, fn func(*admin.Client) error, offline func(model.Desired) error) error {
	if os.Geteuid() != 0 {
		return usage(errors.New("root is needed to ask the daemon: run as root, e.g. with sudo"))
	}
	err := fn(admin.NewClient(r.socket))
	if !gone(err) {
		return r.failed(ctx, err)
	}
	opt := service.Beside(r.socket, admin.Socket)
	w, failed := store.ReadDesired(store.Places{State: opt.State, Run: opt.Run})
	if inUse := new(store.InUseError); errors.As(failed, &inUse) { // a daemon has started meanwhile
		return r.failed(ctx, fn(admin.NewClient(r.socket)))
	}
	switch {
	case errors.Is(failed, fs.ErrNotExist) && r.socket != admin.Socket:
		return fmt.Errorf("no daemon runs at %s, and none has stored anything beside it: check --socket", r.socket)
	case failed != nil && !errors.Is(failed, fs.ErrNotExist):
		return failed
	case offline == nil:
		return fmt.Errorf("no daemon runs at %s: start it with `systemctl start fairlead` or `fairlead daemon`", r.socket)
	}
	r.notes([]string{fmt.Sprintf("no daemon runs at %s: this is what is stored", r.socket)})
	return offline(w)
}

// call calls the daemon, and starts one if none runs.
func (r *remote) call(ctx context.Context, fn func(*admin.Client) error) error {
	if os.Geteuid() != 0 {
		return usage(errors.New("root is needed to change the host's network: run as root, e.g. with sudo"))
	}
	client := admin.NewClient(r.socket)
	err := fn(client)
	if gone(err) {
		opt := service.Beside(r.socket, admin.Socket)
		started, failed := service.Start(ctx, opt)
		if failed != nil {
			return failed
		}
		if started {
			r.err.note("fairlead: started a daemon in the background, which ends when nothing is attached (log: %s)", service.LogFile(opt))
		}
		err = fn(client)
	}
	return r.failed(ctx, nameContainers(ctx, err))
}

// failed says how a call of the daemon ended.
func (r *remote) failed(ctx context.Context, err error) error {
	if exit := (commandExit{}); errors.As(err, &exit) {
		return err // nothing was under way but to look
	}
	if sig, ok := context.Cause(ctx).(interrupted); ok && err != nil {
		return commandExit{exitSignal + int(sig), fmt.Errorf("%w: what was under way is the daemon's to finish: see `fairlead ls`", sig)}
	}
	if daemon.CodeOf(err) == daemon.Invalid {
		return usage(err)
	}
	return err
}

// gone reports whether no daemon listens, or ended as we called: every request
// can be made again.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)
}

// print tells what became of a request; line is for each attachment of it, nil
// prints none.
func (r *remote) print(result daemon.Result, line func(daemon.View) string) error {
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

// printCommands prints the commands of a plan, which has quoted its words.
func (r *remote) printCommands(plan string) error {
	_, err := io.WriteString(r.out.document(), readable(plan))
	return err
}

// notes tells the user what is worth knowing beside the answer.
func (r *remote) notes(notes []string) {
	for _, note := range notes {
		r.err.note("fairlead: %s", note)
	}
}

// completeAttachments completes the first argument by what is attached.
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

// completeNetworks completes the first argument by the networks there are.
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

// tabled writes rows in columns.
func (a *app) tabled(rows [][]string) error {
	return a.out.table(rows)
}
