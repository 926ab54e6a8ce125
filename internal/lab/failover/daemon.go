package failover

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/lab/program"

	"golang.org/x/sys/unix"
)

// Daemon is a whole Fairlead daemon on a host of the laboratory, controlled with the
// same commands as users run. Its zero value has not been started.
type Daemon struct {
	// Process is nil until the daemon was started.
	Process *child.Process
	place   child.Place
	events  *child.Process
	errs    program.Output
}

// Start starts the daemon and waits until it is ready.
func (d *Daemon) Start(ctx context.Context, at child.Place) error {
	d.place = at
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := child.Self(HostRole)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &d.errs, &d.errs, []*os.File{theirs}
	// With this flag, and not with Cloneflags, its mounts stay private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	d.Process, err = child.Start(ctx, cmd, at)
	theirs.Close()
	if err != nil {
		return err
	}
	if said, err := io.ReadAll(ready); err != nil || len(said) == 0 {
		return errors.Join(errors.New("it is not ready"), err)
	}
	return nil
}

// Log returns what the daemon and its followers have printed.
func (d *Daemon) Log() string { return d.errs.Text() }

// command returns a fairlead command that talks to the daemon.
func (d *Daemon) command(args ...string) *exec.Cmd {
	cmd := child.Self(CommandRole)
	cmd.Args = append([]string{"fairlead"}, args...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("FAIRLEAD_SOCKET=/proc/%d/root%s", d.Process.Cmd.Process.Pid, Socket))
	return cmd
}

// Do runs a command and waits until it ends.
func (d *Daemon) Do(ctx context.Context, input []byte, args ...string) error {
	_, err := d.run(ctx, input, args)
	return err
}

// Ask is Do without input. It returns what the command has printed.
func (d *Daemon) Ask(ctx context.Context, args ...string) ([]byte, error) {
	return d.run(ctx, nil, args)
}

func (d *Daemon) run(ctx context.Context, input []byte, args []string) ([]byte, error) {
	var said, errs bytes.Buffer
	cmd := d.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &said, &errs
	p, err := child.Start(ctx, cmd, d.place)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("fairlead %s: %w: %s%s%s", strings.Join(args, " "), err, said.Bytes(), errs.Bytes(),
			d.Log())
	}
	return said.Bytes(), nil
}

// Apply declares objects.
func (d *Daemon) Apply(ctx context.Context, spec map[string]any) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return d.Do(ctx, text, "apply", "-f", "-")
}

// Follow calls report with each event that a real server is up or down, from one
// goroutine, and then ended.
func (d *Daemon) Follow(ctx context.Context, report func(api.Event), ended func()) error {
	cmd := d.command("events", "--follow", "-o", "json")
	cmd.Stderr = &d.errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if d.events, err = child.Start(ctx, cmd, d.place); err != nil {
		return err
	}
	go func() {
		defer ended()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e api.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil && (e.Kind == api.RealIsUp || e.Kind == api.RealIsDown) {
				report(e)
			}
		}
	}()
	return nil
}

// Close ends the daemon in the same manner as a user who wants everything removed, and
// kills it if it has not ended within patience.
func (d *Daemon) Close(patience time.Duration) error {
	if d.events != nil {
		_ = d.events.Kill() // its exit status says only that it was killed
	}
	if d.Process == nil {
		return nil
	}
	if err := d.Process.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.Process.Done():
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("the daemon did not end within %s", patience), d.Process.Kill())
	}
	if err := d.Process.Ended(); err != nil {
		return fmt.Errorf("the daemon ended: %w: %s", err, d.Log())
	}
	return nil
}
