package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
	"fairlead/internal/process"
	"fairlead/internal/store"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// SocketVariable is the environment variable with the path of the daemon's
// socket. The flag --socket has precedence.
const SocketVariable = "FAIRLEAD_SOCKET"

// Remote is what the commands that call the daemon share.
type Remote struct {
	*App
	Socket string
	DryRun bool
}

// Flags adds the flags of every command that calls the daemon.
func (r *Remote) Flags(c *cobra.Command) {
	socket := os.Getenv(SocketVariable)
	if socket == "" {
		socket = admin.Socket
	}
	c.Flags().StringVar(&r.Socket, "socket", socket,
		"path of the daemon's unix socket; if not given, $"+SocketVariable+" if that is set;\na daemon that is "+
			"started for another socket keeps its files in that socket's directory")
	// The generated man page must not depend on the environment.
	c.Flags().Lookup("socket").DefValue = admin.Socket
}

// Changes adds the flags of every command that changes something.
func (r *Remote) Changes(c *cobra.Command) {
	r.Flags(c)
	c.Flags().BoolVar(&r.DryRun, "dry-run", false, "print the commands that would be run, and change nothing")
}

// Read calls the daemon to read its state. If no daemon runs, it does not start
// one: it calls offline with the stored desired state, and returns an error if
// offline is nil.
func (r *Remote) Read(ctx context.Context, fn func(*admin.Client) error, offline func(model.Desired) error) error {
	if os.Geteuid() != 0 {
		return Usage(errors.New("root is needed to ask the daemon: run as root, e.g. with sudo"))
	}
	err := fn(admin.NewClient(r.Socket))
	if !admin.Gone(err) {
		return r.failed(ctx, err)
	}
	opt := process.Beside(r.Socket, admin.Socket)
	w, failed := store.ReadDesired(store.Places{State: opt.State, Run: opt.Run})
	if inUse := new(store.InUseError); errors.As(failed, &inUse) { // a daemon was started meanwhile
		return r.failed(ctx, fn(admin.NewClient(r.Socket)))
	}
	switch {
	case errors.Is(failed, fs.ErrNotExist) && r.Socket != admin.Socket:
		return fmt.Errorf("no daemon runs at %s, and there is no stored state in its directory: check --socket",
			r.Socket)
	case failed != nil && !errors.Is(failed, fs.ErrNotExist):
		return failed
	case offline == nil:
		return fmt.Errorf("no daemon runs at %s: start it with `systemctl start fairlead` or `fairlead daemon`",
			r.Socket)
	}
	r.Notes([]string{fmt.Sprintf("no daemon runs at %s: showing the stored state", r.Socket)})
	return offline(w)
}

// Call calls the daemon. If no daemon runs, it starts one in the background.
func (r *Remote) Call(ctx context.Context, fn func(*admin.Client) error) error {
	if os.Geteuid() != 0 {
		return Usage(errors.New("root is needed to change the host's network: run as root, e.g. with sudo"))
	}
	client := admin.NewClient(r.Socket)
	err := fn(client)
	if admin.Gone(err) {
		opt := process.Beside(r.Socket, admin.Socket)
		started, failed := process.Start(ctx, opt)
		if failed != nil {
			return failed
		}
		if started {
			r.Err.Note("fairlead: started a daemon in the background; it ends when nothing is attached (log: %s)",
				process.LogFile(opt))
		}
		err = fn(client)
	}
	return r.failed(ctx, nameContainers(ctx, err))
}

// Do makes one call of the daemon, and prints the answer with show.
func Do[Request, Answer any](ctx context.Context, r *Remote, call admin.Call[Request, Answer], request Request,
	show func(Answer) error) error {
	return r.Call(ctx, func(client *admin.Client) error {
		answer, err := call.Do(ctx, client, request)
		if err != nil {
			return err
		}
		return show(answer)
	})
}

// Show reads a part of the daemon's state with ask, and prints it with show. If no daemon
// runs, it calls offline, as Read does.
func Show[Answer any](ctx context.Context, r *Remote, ask func(context.Context, *admin.Client) (Answer, error),
	show func(Answer) error, offline func(model.Desired) error) error {
	return r.Read(ctx, func(client *admin.Client) error {
		answer, err := ask(ctx, client)
		if err != nil {
			return err
		}
		return show(answer)
	}, offline)
}

// Follow prints one line per event until it is interrupted. of returns the event's object as it
// is shown, and whether the event is shown.
func (r *Remote) Follow(ctx context.Context, client *admin.Client, of func(api.Event) (string, bool)) error {
	err := client.FollowEvents(ctx, func(e api.Event) error {
		object, shown := of(e)
		switch {
		case !shown:
			return nil
		case r.Output == "json":
			return r.Out.JSONLine(e)
		}
		return r.Out.Line("%s  %s  %s  %s", e.Time.Format(time.DateTime), e.Kind, object,
			wording.OrDash(wording.About(e)))
	})
	if sig, ok := errors.AsType[Interrupted](context.Cause(ctx)); ok {
		return Exit{Code: ExitSignal + int(sig)}
	}
	return err
}

// failed turns the error of a call into the command's error: it handles signals,
// and marks invalid requests as usage errors.
func (r *Remote) failed(ctx context.Context, err error) error {
	if exit := (Exit{}); errors.As(err, &exit) {
		return err // the request only reads
	}
	if sig, ok := context.Cause(ctx).(Interrupted); ok && err != nil {
		return Exit{ExitSignal + int(sig), fmt.Errorf("%w: the daemon completes the request that was "+
			"running: see `fairlead ls`", sig)}
	}
	if api.CodeOf(err) == api.Invalid {
		return Usage(err)
	}
	return err
}

// Print prints the result of a request. It prints line for each attachment of the
// result, and nothing if line is nil.
func (r *Remote) Print(result api.Result, line func(api.View) string) error {
	r.Notes(result.Notes)
	switch {
	case r.Output == "json":
		return r.JSON(result)
	case r.DryRun && result.Plan == "":
		return r.Out.Line("# nothing to do")
	case r.DryRun:
		return r.PrintCommands(result.Plan)
	}
	if line == nil {
		return nil
	}
	for _, v := range result.Attachments {
		if err := r.Out.Line("%s", line(v)); err != nil {
			return err
		}
	}
	return nil
}

// Printing returns Print for results with such lines.
func (r *Remote) Printing(line func(api.View) string) func(api.Result) error {
	return func(result api.Result) error { return r.Print(result, line) }
}

// PrintCommands prints the commands of a plan. The plan has quoted their words.
func (r *Remote) PrintCommands(plan string) error {
	_, err := io.WriteString(r.Out.Document(), wording.Readable(plan))
	return err
}

// Notes prints the notes of a result to the standard error.
func (r *Remote) Notes(notes []string) {
	for _, note := range notes {
		r.Err.Note("fairlead: %s", note)
	}
}
