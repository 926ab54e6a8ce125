package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/dockerd"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// The laboratory's files on the engine's host, this binary and the directory of
// control channels, and where containers see them.
const (
	dockFiles = "/run/lab"
	boxFiles  = "/lab"
	binary    = "/fairlead"
	controls  = "/control"
)

// dockNetwork and dockImage are the names of the network and the image of the
// containers.
const (
	dockNetwork = "lab"
	dockImage   = "lab"
)

// daemonLimit is how long Fairlead's daemon may take until it listens.
const daemonLimit = 30 * time.Second

// docker runs the workload in a container of a Docker engine, on a network of the
// engine or of Fairlead's plugin.
type docker struct {
	rig.Base
	// plugin: the networks are Fairlead's.
	plugin bool
	engine *dockerd.Engine
	cgroup *os.File
	// daemon is Fairlead's daemon, nil if the networks are Docker's.
	daemon *child.Process
	said   program.Output
}

func newDocker(p suite.Path) rig.Maker { return &docker{Base: rig.Base{Path: p}} }

func newDockerFairlead(p suite.Path) rig.Maker { return &docker{Base: rig.Base{Path: p}, plugin: true} }

// Needs implements rig.Maker: the programs that a private engine needs.
func (d *docker) Needs() rig.Needs {
	return rig.Needs{Cgroup: "a Docker engine needs a cgroup", Static: true, Programs: []rig.Program{
		{Name: "dockerd", Package: "docker.io"}, {Name: "docker", Package: "docker.io"},
		{Name: "containerd", Package: "containerd"}, {Name: "runc", Package: "runc"},
		unshareCommand,
		{Name: "nsenter", Package: "util-linux"}, {Name: "mount", Package: "mount"},
	}}
}

// Start implements rig.Maker. It starts the engine on the server host, with the
// network for the path's containers.
func (d *docker) Start(ctx context.Context, r *rig.Rig) (err error) {
	r.Undo(d.close)
	if d.cgroup, err = os.Open(r.Groups.Path()); err != nil {
		return err
	}
	if d.plugin {
		// If forwarding is off, dockerd switches it on and then drops everything
		// that is forwarded to networks other than its own.
		if _, err := program.Shell(r.World.DoServer, "echo 1 > /proc/sys/net/ipv4/ip_forward"); err != nil {
			return err
		}
	}
	d.engine, err = dockerd.Start(ctx, dockerd.Options{
		Netns: r.World.Server().Netns, Cgroup: d.cgroup, Accounted: r.Groups.Proxy,
		Programs: r.Docker, Flags: d.flags(),
	})
	if err != nil {
		return err
	}
	if err := d.furnish(ctx); err != nil {
		return err
	}
	if d.plugin {
		if err := d.startDaemon(ctx, r); err != nil {
			return err
		}
	}
	create := [][]string{d.createNetwork()}
	if r.Wants(result.OtherNetwork) {
		create = append(create, d.createOther())
	}
	for _, args := range create {
		if args == nil {
			continue
		}
		if _, err := d.engine.Run(ctx, args...); err != nil {
			return errors.Join(err, errors.New(d.said.Line()))
		}
	}
	return nil
}

// createOther returns the arguments for docker to create another network like that of
// the path, nil on the host's network.
func (d *docker) createOther() []string {
	if d.InHost() {
		return nil
	}
	args := []string{"network", "create"}
	if d.plugin {
		args = append(args, "--driver", "fairlead", "--opt", "driver="+string(d.Path.Driver))
	}
	return append(args, "--subnet", d.Addresses().OtherSubnet.String(), rig.OtherNetwork)
}

// flags returns dockerd's flags for the path; everything else has the default.
func (d *docker) flags() []string {
	var flags []string
	if d.Path.MTU != 1500 {
		flags = append(flags, "--mtu", fmt.Sprint(d.Path.MTU))
	}
	if d.Path.NoProxy {
		flags = append(flags, "--userland-proxy=false")
	}
	return flags
}

// furnish copies this binary to the engine's host, and creates the image of containers that run it.
func (d *docker) furnish(ctx context.Context) error {
	if err := os.MkdirAll(d.engine.Root()+dockFiles+controls, 0o755); err != nil {
		return err
	}
	if err := copyProgram(d.engine.Root() + dockFiles + binary); err != nil {
		return err
	}
	return d.engine.ImportEmpty(ctx, dockImage, boxFiles+binary)
}

// copyProgram copies this binary.
func copyProgram(to string) error {
	self, err := os.Open(ownBinary)
	if err != nil {
		return err
	}
	defer self.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, self)
	return errors.Join(err, f.Close())
}

// startDaemon starts Fairlead's daemon on the engine's host, with the plugin's
// socket where dockerd looks for it.
func (d *docker) startDaemon(ctx context.Context, r *rig.Rig) error {
	plugin := dockerd.Plugins + "/fairlead.sock"
	cmd := d.engine.Command(context.WithoutCancel(ctx), dockFiles+binary, "daemon",
		"--run-dir", "/run/fairlead", "--state-dir", "/run/fairlead/state",
		"--socket", "/run/fairlead.sock", "--docker-socket", plugin)
	cmd.Stdout, cmd.Stderr = &d.said, &d.said
	p, err := child.Start(ctx, cmd, child.Place{Cgroup: r.Groups.Proxy})
	if err != nil {
		return err
	}
	d.daemon = p
	listening := func() bool {
		_, err := os.Stat(d.engine.Root() + plugin)
		return err == nil
	}
	limited, cancel := context.WithTimeout(ctx, daemonLimit)
	defer cancel()
	if !program.Await(limited, p, listening) {
		return errors.Join(fmt.Errorf("start Fairlead's daemon: no plugin: %s", d.said.Line()), limited.Err())
	}
	return r.World.CountEBPFOf(d.engine.Root())
}

// createNetwork returns the arguments for docker to create the path's network, nil
// if every engine has that network.
func (d *docker) createNetwork() []string {
	p := d.Path
	if d.InHost() || d.onDefaultBridge() {
		return nil
	}
	at := d.Addresses()
	args := []string{"network", "create"}
	switch {
	case d.plugin:
		args = append(args, "--driver", "fairlead", "--opt", "driver="+string(p.Driver))
	case p.Driver != model.DriverBridge:
		args = append(args, "--driver", string(p.Driver))
	}
	if p.Via != "" {
		args = append(args, "--opt", "via="+string(p.Via))
	}
	if p.Driver == model.DriverMacvlan {
		return append(args, "--opt", "parent="+topology.Wire,
			"--subnet", topology.Subnet(at.Server).Masked().String(),
			"--ip-range", at.WireRange.String(), "--gateway", at.Client.String(), dockNetwork)
	}
	if p.MTU != 1500 {
		args = append(args, "--opt", "com.docker.network.driver.mtu="+fmt.Sprint(p.MTU))
	}
	return append(args, "--subnet", at.Subnet.String(), dockNetwork)
}

// onDefaultBridge reports whether the path's containers are on Docker's default
// bridge.
func (d *docker) onDefaultBridge() bool {
	p := d.Path
	return !d.plugin && p.Driver == model.DriverBridge && !p.Direct && !p.OwnNetwork
}

// networkArgs returns the arguments that connect a container to the path's
// network, with a fixed address if the client dials it.
func (d *docker) networkArgs(addr netip.Addr) []string {
	switch {
	case d.InHost():
		return []string{"--network", "host"}
	case d.onDefaultBridge():
		return nil
	case d.Path.Direct:
		return []string{"--network", dockNetwork, "--ip", addr.String()}
	}
	return []string{"--network", dockNetwork}
}

// publishArgs returns the arguments that publish a range of ports, if the path
// publishes any.
func (d *docker) publishArgs(first, last int, protocols ...model.Proto) []string {
	if d.Path.Direct || d.InHost() {
		return nil
	}
	ports := fmt.Sprintf("%d-%d", first, last)
	var args []string
	for _, proto := range protocols {
		args = append(args, "--publish", fmt.Sprintf("%s:%s/%s", ports, ports, proto))
	}
	return args
}

func (d *docker) close() error {
	var err error
	if d.engine != nil {
		err = d.engine.Stop()
	}
	if d.daemon != nil {
		<-d.daemon.Done()
	}
	if d.cgroup != nil {
		d.cgroup.Close()
	}
	return err
}

// Count implements rig.Maker.
func (d *docker) Count(ctx context.Context, r *rig.Rig, n *rig.Counters) (err error) {
	if d.Path.Via == model.ViaProxy {
		if n.ProxyTime, err = proxyTime(r); err != nil {
			return err
		}
	}
	return d.Base.Count(ctx, r, n)
}

// Proof implements rig.Maker. Docker's rules make conntrack follow everything that
// passes the host.
func (d *docker) Proof(w rig.Window, links *result.Proof) *result.Proof {
	if d.Path.Via == model.ViaProxy {
		return rig.CPUProof("Fairlead's proxy", float64(w.After.ProxyTime-w.Before.ProxyTime)/1e9)
	}
	return d.Base.Proof(w, links)
}

// control returns the path of a container's control socket, for this process and
// in the container.
func (d *docker) control(name string) (ours, theirs string) {
	return d.engine.Root() + filepath.Join(dockFiles, controls, name), filepath.Join(boxFiles, controls, name)
}
