package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/escape"
	"fairlead/internal/lab/load"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/startup"
	"fairlead/internal/model"

	"golang.org/x/sys/unix"
)

// containerLimit is how long `docker run` may take until the container's process
// has connected; Docker needs a tenth of a second per port.
const containerLimit = 10 * time.Minute

// container is a container in the foreground: `docker run` ends when it ends.
type container struct {
	cli  *child.Process
	said *program.Output
	// control is the channel that its process has opened.
	control net.Conn
	// process is the container's process, in this process's PID namespace.
	process *os.Process
}

// runContainer runs this binary in a role in a container, with docker's flags, and
// waits until its process has connected to the control channel whose path is in
// the variable. The ledger accounts for the process as the server.
func (d *docker) runContainer(
	ctx context.Context, r *rig.Rig, name, role, variable string, flags ...string,
) (*container, error) {
	ours, theirs := d.control(name)
	_ = os.Remove(ours) // left over from an earlier container of this name
	l, err := net.Listen("unix", ours)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	args := append([]string{"run", "--rm", "--name", name, "--volume", dockFiles + ":" + boxFiles,
		"--env", child.Role + "=" + role, "--env", variable + "=" + theirs}, flags...)
	c := &container{said: &program.Output{}}
	cmd := d.engine.Docker(context.WithoutCancel(ctx), append(args, dockImage)...)
	cmd.Stdout, cmd.Stderr = c.said, c.said
	if c.cli, err = child.Start(ctx, cmd, child.Place{Cgroup: r.Groups.Proxy}); err != nil {
		return nil, err
	}
	if c.control, err = c.call(ctx, l); err != nil {
		_ = c.cli.Kill() // its output is complete only after it has ended
		return nil, fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, causeIn(c.said.Text()))
	}
	if err := c.know(); err != nil {
		return nil, errors.Join(fmt.Errorf("find the container %s: %w", name, err), c.cli.Kill())
	}
	if err := moveTo(r.Groups.Server, c.PID()); err != nil {
		return nil, errors.Join(err, c.Kill())
	}
	return c, nil
}

// call waits for the connection of the container's process.
func (c *container) call(ctx context.Context, l net.Listener) (net.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, containerLimit)
	defer cancel()
	defer context.AfterFunc(limited, func() { l.Close() })()
	called := make(chan struct{})
	defer close(called)
	go func() {
		select {
		case <-c.cli.Done():
			l.Close()
		case <-called:
		}
	}()
	conn, err := l.Accept()
	if err != nil {
		return nil, errors.Join(errors.New("it does not connect"), limited.Err())
	}
	return conn, nil
}

// causeIn returns what docker's CLI has printed about a failure, in one line. The log lines and the advice of the CLI are
// omitted, because they would follow the cause: a report repeats only the begin and the end of an error.
func causeIn(output string) string {
	var cause strings.Builder
	for line := range strings.Lines(output) {
		if !slices.ContainsFunc([]string{`time="`, "Run 'docker ", "See 'docker "},
			func(begin string) bool { return strings.HasPrefix(line, begin) }) {
			cause.WriteString(line)
		}
	}
	return cmp.Or(escape.OneLine(cause.String()), escape.OneLine(output))
}

// know gets the id of the process that has connected from the kernel.
func (c *container) know() error {
	raw, err := c.control.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var caller *unix.Ucred
	err = errors.Join(raw.Control(func(fd uintptr) {
		caller, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}), err)
	if err != nil {
		return err
	}
	c.process, err = os.FindProcess(int(caller.Pid))
	return err
}

// moveTo moves a process to a cgroup.
func moveTo(group *os.File, pid int) error {
	err := os.WriteFile(filepath.Join(group.Name(), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	if err != nil {
		return fmt.Errorf("account for a container: %w", err)
	}
	return nil
}

// PID implements load.Child.
func (c *container) PID() int { return c.process.Pid }

// Done returns a channel that is closed when the container has ended and is removed.
func (c *container) Done() <-chan struct{} { return c.cli.Done() }

// Wait waits until docker's CLI ends, and returns its error.
func (c *container) Wait() error {
	err := c.cli.Wait()
	if err != nil {
		err = fmt.Errorf("docker run: %w: %s", err, causeIn(c.said.Text()))
	}
	return err
}

// Kill ends the container's process, and waits until the container is removed.
func (c *container) Kill() error {
	err := c.process.Kill()
	<-c.cli.Done()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// End implements rig.Container.
func (c *container) End() error {
	c.control.Close()
	return c.Wait()
}

// loadContainer starts a child of the generator in a container on the path's
// network.
func (d *docker) loadContainer(ctx context.Context, r *rig.Rig, name string, flags ...string) (*container, error) {
	flags = append(flags, "--env", "GODEBUG=asyncpreemptoff=1")
	return d.runContainer(ctx, r, name, load.Role, load.Control, flags...)
}

// StartServer implements rig.Containers.
func (d *docker) StartServer(ctx context.Context, r *rig.Rig) (*load.Server, error) {
	flags := append(d.networkArgs(d.Addr()), d.publishArgs(rig.LoadPort, rig.LastPort, model.TCP, model.UDP)...)
	c, err := d.loadContainer(ctx, r, rig.Workload, flags...)
	if err != nil {
		return nil, err
	}
	return load.AdoptServer(c, c.control), r.World.Adopt(rig.Workload, fmt.Sprintf("/proc/%d/ns/net", c.PID()))
}

// StartClient implements rig.Containers.
func (d *docker) StartClient(ctx context.Context, r *rig.Rig, client result.Client) (*load.Client, error) {
	name, args := rig.Neighbor, d.networkArgs(d.Addresses().Neighbor)
	switch {
	case client == result.Outbound:
		name, args = "client", []string{"--network", "container:" + rig.Workload}
	case client == result.OtherNetwork && !d.InHost():
		name, args = rig.Other, []string{"--network", rig.OtherNetwork}
	case client == result.OtherNetwork:
		name = rig.Other
	}
	c, err := d.loadContainer(ctx, r, name, args...)
	if err != nil {
		return nil, err
	}
	if client == result.OtherNetwork {
		if err := r.World.Adopt(rig.Other, fmt.Sprintf("/proc/%d/ns/net", c.PID())); err != nil {
			return nil, err
		}
	}
	return load.AdoptClient(c, c.control), moveTo(r.Groups.Client, c.PID())
}

// firstStartPort is the first port that a container publishes when its start is
// measured.
const firstStartPort = 20_000

// StartAnswerer implements rig.Containers.
func (d *docker) StartAnswerer(
	ctx context.Context, r *rig.Rig, proto model.Proto, answer string,
) (rig.Container, netip.AddrPort, error) {
	last := firstStartPort + r.Path.Ports - 1
	at := d.Addresses()
	addr, target := at.Started, at.Server
	if d.Path.OnWire() {
		addr = at.WireStarted
	}
	if d.Path.Direct {
		target = addr
	}
	flags := append(d.networkArgs(addr), d.publishArgs(firstStartPort, last, proto)...)
	listen := fmt.Sprintf("%s=%s:%d", startup.Listen, proto, last)
	flags = append(flags, "--env", listen, "--env", startup.Answer+"="+answer)
	c, err := d.runContainer(ctx, r, "start", startup.AnswerRole, startup.Control, flags...)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	return c, netip.AddrPortFrom(target, uint16(last)), nil
}
