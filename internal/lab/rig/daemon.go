package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/program"

	"golang.org/x/sys/unix"
)

// daemonBalancer is a whole Fairlead daemon on the server host, controlled with
// the same commands as users run.
type daemonBalancer struct {
	*Trial
	daemon *child.Process
	events *child.Process
	said   Reports
	errs   program.Output
}

// startDaemonBalancer starts the daemon, makes it attach the sandboxes and balance
// over them, and follows its events.
func startDaemonBalancer(ctx context.Context, t *Trial) (*daemonBalancer, error) {
	b := &daemonBalancer{Trial: t, said: NewReports()}
	if err := b.start(ctx); err != nil {
		return b, fmt.Errorf("start the daemon: %w: %s", err, b.Log())
	}
	sandboxes, err := b.sandboxes()
	if err != nil {
		return b, err
	}
	// The first check decides at once, so the servers' endpoints are created
	// before it.
	for _, spec := range []map[string]any{sandboxes, b.balanced(sandboxes)} {
		text, err := json.Marshal(spec)
		if err == nil {
			err = b.do(ctx, text, "apply", "-f", "-")
		}
		if err != nil {
			return b, err
		}
	}
	return b, b.follow(ctx)
}

// start starts the daemon and waits until it is ready.
func (b *daemonBalancer) start(ctx context.Context) error {
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := child.Self(failover.HostRole)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &b.errs, &b.errs, []*os.File{theirs}
	// With this flag, and not with Cloneflags, its mounts stay private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	b.daemon, err = child.Start(ctx, cmd, b.Rig.Place(b.World.Server(), ProxyGroup))
	theirs.Close()
	if err != nil {
		return err
	}
	if said, err := io.ReadAll(ready); err != nil || len(said) == 0 {
		return errors.Join(errors.New("it is not ready"), err)
	}
	return nil
}

// sandboxes declares the sandboxes, with paths that other processes can open.
func (b *daemonBalancer) sandboxes() (map[string]any, error) {
	at := b.Rig.Addresses()
	var attachments []map[string]any
	for _, name := range b.Names {
		box, err := b.World.Sandbox(name)
		if err != nil {
			return nil, err
		}
		attachments = append(attachments, map[string]any{
			"name": name, "sandbox": program.ForOthers(box), "network": Network, "address": at.Reals[name].String(),
		})
	}
	p := b.Rig.Path
	return map[string]any{
		"networks": map[string]any{Network: map[string]any{"driver": p.Driver, "subnet": at.Subnet.String(),
			"mtu": p.MTU}},
		"attachments": attachments,
	}, nil
}

// balanced adds a service over the sandboxes to the declaration.
func (b *daemonBalancer) balanced(sandboxes map[string]any) map[string]any {
	p := b.Rig.Path
	var servers []string
	for _, name := range b.Names {
		servers = append(servers, b.at(name))
	}
	check := map[string]any{"type": "tcp", "interval": b.Interval.String(), "fall": Fall, "rise": Rise}
	if p.Passive {
		check["passive"] = true
	}
	spec := maps.Clone(sandboxes)
	spec["services"] = map[string]any{Service: map[string]any{
		"address": b.Rig.Addresses().Virtual.String(), "port": LoadPort, "plane": p.Plane, "drain": "10s",
		"check": check, "reals": servers,
	}}
	return spec
}

// at returns the address and port of a real server, as in commands and events.
func (b *daemonBalancer) at(name string) string {
	return netip.AddrPortFrom(b.Rig.Addresses().Reals[name], LoadPort).String()
}

// command returns a fairlead command that talks to the daemon.
func (b *daemonBalancer) command(args ...string) *exec.Cmd {
	cmd := child.Self(failover.CommandRole)
	cmd.Args = append([]string{"fairlead"}, args...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("FAIRLEAD_SOCKET=/proc/%d/root%s", b.daemon.Cmd.Process.Pid, failover.Socket))
	return cmd
}

// do runs a command and waits until it ends.
func (b *daemonBalancer) do(ctx context.Context, input []byte, args ...string) error {
	var said bytes.Buffer
	cmd := b.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &said, &said
	p, err := child.Start(ctx, cmd, b.Rig.Place(b.World.Server(), ProxyGroup))
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return fmt.Errorf("fairlead %s: %w: %s%s", strings.Join(args, " "), err, said.Bytes(), b.Log())
	}
	return nil
}

// follow reads the daemon's events.
func (b *daemonBalancer) follow(ctx context.Context) error {
	cmd := b.command("events", "--follow", "-o", "json")
	cmd.Stderr = &b.errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if b.events, err = child.Start(ctx, cmd, b.Rig.Place(b.World.Server(), ProxyGroup)); err != nil {
		return err
	}
	go func() {
		defer close(b.said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e api.Event
			if json.Unmarshal(lines.Bytes(), &e) != nil || e.Kind != api.RealIsUp && e.Kind != api.RealIsDown {
				continue
			}
			for name := range b.Rig.Addresses().Reals {
				if e.Object == fmt.Sprintf("service %s real %s", Service, b.at(name)) {
					b.said.Send(Report{e.Time, name, e.Kind == api.RealIsUp})
				}
			}
		}
	}()
	return nil
}

func (b *daemonBalancer) Target() netip.AddrPort {
	return netip.AddrPortFrom(b.Rig.Addresses().Virtual, LoadPort)
}

func (b *daemonBalancer) Reports() <-chan Report { return b.said }

func (b *daemonBalancer) Log() string { return b.errs.Text() }

func (b *daemonBalancer) Drain(ctx context.Context, server string) error {
	return b.do(ctx, nil, "service", "drain", Service, b.at(server), "--wait")
}

func (b *daemonBalancer) Enable(ctx context.Context, server string) error {
	return b.do(ctx, nil, "service", "enable", Service, b.at(server))
}

// Close ends the daemon in the same manner as a user who wants everything removed.
func (b *daemonBalancer) Close() error {
	if b.events != nil {
		_ = b.events.Kill() // its exit status says only that it was killed
	}
	if b.daemon == nil {
		return nil
	}
	if err := b.daemon.Cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-b.daemon.Done():
	case <-time.After(Patience):
		return errors.Join(fmt.Errorf("the daemon did not end within %s", Patience), b.daemon.Kill())
	}
	if err := b.daemon.Ended(); err != nil {
		return fmt.Errorf("the daemon ended: %w: %s", err, b.Log())
	}
	return nil
}
