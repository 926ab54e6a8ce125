package site

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
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/ledger"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/topology/lan"
	"fairlead/internal/lab/website"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// service is the name of the virtual service, directorName that of the director's host.
const (
	service      = "site"
	directorName = "director"
)

// Fall and Rise are the numbers of failed and successful checks in a row after which
// the director removes a gateway and adds it again.
const (
	Fall = 2
	Rise = 2
)

// director is a whole Fairlead daemon on the director's host, controlled with the
// same commands as users run.
type director struct {
	site   *Site
	host   *lan.Host
	group  *ledger.Limited
	daemon *child.Process
	events *child.Process
	said   chan Report
	errs   program.Output
}

// Report is the director's report that a gateway is up or down.
type Report struct {
	At   time.Time
	Node string
	Up   bool
}

// manyReports is how many unread reports are kept; later ones are lost.
const manyReports = 1000

// startDirector starts the daemon, declares the service and waits until the director
// uses all gateways.
func startDirector(ctx context.Context, s *Site) (d *director, err error) {
	d = &director{site: s, said: make(chan Report, manyReports)}
	if d.host, err = s.lan.Join(directorName, s.addr(directorNumber)); err != nil {
		return d, err
	}
	if d.group, err = s.Groups.Limited(directorName); err != nil {
		return d, err
	}
	if err := d.start(ctx); err != nil {
		return d, fmt.Errorf("start the director's daemon: %w: %s", err, d.errs.Text())
	}
	text, err := json.Marshal(d.spec())
	if err == nil {
		err = d.do(ctx, text, "apply", "-f", "-")
	}
	if err != nil {
		return d, err
	}
	if err := d.follow(ctx); err != nil {
		return d, err
	}
	var failed error
	answers := func() bool { failed = s.ask(s.virtual()); return failed == nil }
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !program.Await(soon, d.daemon, answers) {
		return d, errors.Join(errors.New("the site does not answer through the director"), failed, soon.Err())
	}
	return d, nil
}

func (d *director) place() child.Place {
	return child.Place{Netns: d.host.Netns(), Cgroup: d.group.Dir}
}

// start starts the daemon and waits until it is ready.
func (d *director) start(ctx context.Context) error {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := child.Self(failover.HostRole)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &d.errs, &d.errs, []*os.File{theirs}
	// With this flag, and not with Cloneflags, its mounts stay private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	d.daemon, err = child.Start(ctx, cmd, d.place())
	theirs.Close()
	if err != nil {
		return err
	}
	if said, err := io.ReadAll(ready); err != nil || len(said) == 0 {
		return errors.Join(errors.New("it is not ready"), err)
	}
	return nil
}

// spec declares the service, as in examples/ipvs-direct-routing.yaml.
func (d *director) spec() map[string]any {
	var reals []string
	for _, n := range d.site.Gateways() {
		reals = append(reals, n.Addr.String())
	}
	s := map[string]any{"address": d.site.virtual().String(), "port": securePort, "interface": lan.Link,
		"forward": "direct", "reals": reals, "drain": "10s", "plane": d.site.Path.Plane,
		"scheduler": d.site.Path.Scheduler}
	if d.site.Interval > 0 {
		s["check"] = map[string]any{"type": "https", "host": Host, "path": website.Small,
			"interval": d.site.Interval.String(), "fall": Fall, "rise": Rise}
	}
	return map[string]any{"services": map[string]any{service: s}}
}

// command returns a fairlead command that talks to the daemon.
func (d *director) command(args ...string) *exec.Cmd {
	cmd := child.Self(failover.CommandRole)
	cmd.Args = append([]string{"fairlead"}, args...)
	socket := fmt.Sprintf("/proc/%d/root%s", d.daemon.Cmd.Process.Pid, failover.Socket)
	cmd.Env = append(cmd.Env, "FAIRLEAD_SOCKET="+socket)
	return cmd
}

// do runs a command and waits until it ends.
func (d *director) do(ctx context.Context, input []byte, args ...string) error {
	var said bytes.Buffer
	cmd := d.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &said, &said
	p, err := child.Start(ctx, cmd, d.place())
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return fmt.Errorf("fairlead %s: %w: %s%s", strings.Join(args, " "), err, said.Bytes(), d.errs.Text())
	}
	return nil
}

// follow reads the daemon's events.
func (d *director) follow(ctx context.Context) error {
	cmd := d.command("events", "--follow", "-o", "json")
	cmd.Stderr = &d.errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if d.events, err = child.Start(ctx, cmd, d.place()); err != nil {
		return err
	}
	go func() {
		defer close(d.said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e api.Event
			if json.Unmarshal(lines.Bytes(), &e) != nil || e.Kind != api.RealIsUp && e.Kind != api.RealIsDown {
				continue
			}
			for _, n := range d.site.Gateways() {
				if e.Object != fmt.Sprintf("service %s real %s", service, at(n)) {
					continue
				}
				select {
				case d.said <- Report{e.Time, n.Name, e.Kind == api.RealIsUp}:
				default:
				}
			}
		}
	}()
	return nil
}

// at returns a gateway's name in commands and events: its port is the service's.
func at(n *Node) string { return model.RealServer{Address: n.Addr}.String() }

// drain stops new connections to a node and waits until it has none.
func (d *director) drain(ctx context.Context, n *Node) error {
	return d.do(ctx, nil, "service", "drain", service, at(n), "--wait")
}

// enable allows new connections to a node again.
func (d *director) enable(ctx context.Context, n *Node) error {
	return d.do(ctx, nil, "service", "enable", service, at(n))
}

// Await waits until the director reports after a time that a gateway is up or down,
// and returns the time of the report.
func (s *Site) Await(ctx context.Context, n *Node, up bool, after time.Time) (time.Time, error) {
	expired := time.After(patience)
	for {
		select {
		case said, ok := <-s.director.said:
			if !ok {
				return time.Time{}, fmt.Errorf("the director's daemon has ended: %s", s.director.errs.Text())
			}
			if said.Node == n.Name && said.Up == up && said.At.After(after) {
				return said.At, nil
			}
		case <-expired:
			return time.Time{}, fmt.Errorf("the director has not reported within %s that the gateway of %s has failed "+
				"or returned: %s", patience, n.Name, s.director.errs.Text())
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// close ends the daemon in the same manner as a user who wants everything removed.
func (d *director) close() error {
	if d.events != nil {
		_ = d.events.Kill() // its exit status says only that it was killed
	}
	var errs []error
	if d.daemon != nil {
		errs = append(errs, d.end())
	}
	if d.group != nil {
		errs = append(errs, d.group.Close())
	}
	return errors.Join(errs...)
}

func (d *director) end() error {
	if err := d.daemon.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.daemon.Done():
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("the daemon did not end within %s", patience), d.daemon.Kill())
	}
	if err := d.daemon.Ended(); err != nil {
		return fmt.Errorf("the daemon ended: %w: %s", err, d.errs.Text())
	}
	return nil
}
