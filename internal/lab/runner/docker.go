package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/dockerd"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// The laboratory's files on the engine's host: this binary, and the directory of
// control channels, which containers see at another path.
const (
	dockBinary   = "/run/lab/fairlead"
	dockControls = "/run/lab/control"
	boxControls  = "/control"
)

// dockNetwork and dockImage are the names of the network and the image of the
// containers.
const (
	dockNetwork = "lab"
	dockImage   = "lab"
)

// daemonLimit is how long Fairlead's daemon may take until it listens.
const daemonLimit = 30 * time.Second

// starter and wireStarter are the addresses of a container whose start is measured:
// on the path's network, and on the wire.
var (
	starter     = netip.MustParseAddr("172.30.0.9")
	wireStarter = netip.MustParseAddr("198.51.100.21")
)

// dock is a rig's Docker engine.
type dock struct {
	engine *dockerd.Engine
	cgroup *os.File
	// daemon is Fairlead's daemon, nil if the networks are Docker's.
	daemon *child.Process
	said   waiter
}

// dockPrograms are the programs that a private engine needs; containerd and runc
// are in the same package.
func dockPrograms() []string {
	return []string{"dockerd", "docker", "containerd", "runc", "unshare", "nsenter", "mount"}
}

// ownBinary is the program that containers run, as a part of the laboratory.
const ownBinary = "/proc/self/exe"

// undockable returns why the program cannot run in a path's container; "" if it
// can.
func undockable(p suite.Path, program string) string {
	if !p.InDocker() {
		return ""
	}
	err := dockerd.Static(program)
	if errors.Is(err, dockerd.ErrDynamic) {
		return "this fairlead is dynamically linked, and its containers have no libraries: build it with make build, or with CGO_ENABLED=0"
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// Engine returns an error if a directory for a Docker engine's programs has no
// dockerd.
func Engine(dir string) error {
	if dir == "" {
		return nil
	}
	if _, err := exec.LookPath(filepath.Join(dir, "dockerd")); err != nil {
		return fmt.Errorf("docker %s: want a directory with dockerd: %w", dir, err)
	}
	return nil
}

// Engines returns the number of Docker engines that a session of the suite needs.
func Engines(s suite.Suite) int {
	engines := map[string]bool{}
	for _, name := range s.Paths {
		if p, _ := suite.FindPath(name); p.InDocker() {
			engines[fmt.Sprint(p.Plain, p.MTU)] = true
		}
	}
	return len(engines)
}

// startDocker starts the rig's engine on the server host, with the network for the
// path's containers.
func startDocker(ctx context.Context, r *rig) (*foreign, error) {
	d := &dock{}
	f := &foreign{undo: d.close}
	var err error
	if d.cgroup, err = os.Open(r.groups.Path()); err != nil {
		return f, err
	}
	if r.path.Peer == suite.DockerFairlead {
		// If forwarding is off, dockerd switches it on and then drops everything
		// that is forwarded to networks other than its own.
		if _, err := shell(r.world.DoServer, "echo 1 > /proc/sys/net/ipv4/ip_forward"); err != nil {
			return f, err
		}
	}
	d.engine, err = dockerd.Start(ctx, dockerd.Options{
		Netns: r.world.Server().Netns, Cgroup: d.cgroup, Accounted: r.groups.Proxy, Programs: r.programs, Flags: dockFlags(r.path),
	})
	if err != nil {
		return f, err
	}
	r.dock = d
	if err := d.furnish(ctx); err != nil {
		return f, err
	}
	if r.path.Peer == suite.DockerFairlead {
		if err := d.startDaemon(ctx, r); err != nil {
			return f, err
		}
	}
	if create := createNetwork(r.path); create != nil {
		if _, err := d.engine.Run(ctx, create...); err != nil {
			return f, errors.Join(err, errors.New(d.said.text()))
		}
	}
	return f, nil
}

// dockFlags returns dockerd's flags for the path; everything else has the default.
func dockFlags(p suite.Path) []string {
	var flags []string
	if p.MTU != 1500 {
		flags = append(flags, "--mtu", fmt.Sprint(p.MTU))
	}
	if p.NoProxy {
		flags = append(flags, "--userland-proxy=false")
	}
	return flags
}

// furnish copies this binary to the engine's host, and into an image.
func (d *dock) furnish(ctx context.Context) error {
	if err := os.MkdirAll(d.engine.Root()+dockControls, 0o755); err != nil {
		return err
	}
	if err := copyProgram(d.engine.Root() + dockBinary); err != nil {
		return err
	}
	return d.engine.Import(ctx, dockImage, ownBinary)
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
func (d *dock) startDaemon(ctx context.Context, r *rig) error {
	plugin := dockerd.Plugins + "/fairlead.sock"
	cmd := d.engine.Command(context.WithoutCancel(ctx), dockBinary, "daemon", "--run-dir", "/run/fairlead", "--state-dir", "/run/fairlead/state",
		"--socket", "/run/fairlead.sock", "--docker-socket", plugin)
	cmd.Stdout, cmd.Stderr = &d.said, &d.said
	p, err := child.Start(ctx, cmd, child.Place{Cgroup: r.groups.Proxy})
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
	if !await(limited, p, listening) {
		return errors.Join(fmt.Errorf("start Fairlead's daemon: no plugin: %s", d.said.text()), limited.Err())
	}
	return r.world.CountEBPFOf(d.engine.Root())
}

// createNetwork returns the arguments for docker to create the path's network, nil
// if every engine has that network.
func createNetwork(p suite.Path) []string {
	if p.Driver == model.DriverHost || onDefaultBridge(p) {
		return nil
	}
	args := []string{"network", "create"}
	switch {
	case p.Peer == suite.DockerFairlead:
		args = append(args, "--driver", "fairlead", "--opt", "driver="+string(p.Driver))
	case p.Driver != model.DriverBridge:
		args = append(args, "--driver", string(p.Driver))
	}
	if p.Via != "" {
		args = append(args, "--opt", "via="+string(p.Via))
	}
	if p.Driver == model.DriverMacvlan {
		return append(args, "--opt", "parent="+topology.Wire, "--subnet", topology.Subnet(topology.ServerAddr4).Masked().String(),
			"--ip-range", wirePool.String(), "--gateway", topology.ClientAddr4.String(), dockNetwork)
	}
	if p.MTU != 1500 {
		args = append(args, "--opt", "com.docker.network.driver.mtu="+fmt.Sprint(p.MTU))
	}
	return append(args, "--subnet", subnet.String(), dockNetwork)
}

// onDefaultBridge reports whether the path's containers are on Docker's default
// bridge.
func onDefaultBridge(p suite.Path) bool {
	return p.Peer == suite.Docker && p.Driver == model.DriverBridge && !p.Direct && !p.OwnNetwork
}

// networkArgs returns the arguments that connect a container to the path's
// network, with a fixed address if the client dials it.
func networkArgs(p suite.Path, addr netip.Addr) []string {
	switch {
	case p.Driver == model.DriverHost:
		return []string{"--network", "host"}
	case onDefaultBridge(p):
		return nil
	case p.Direct:
		return []string{"--network", dockNetwork, "--ip", addr.String()}
	}
	return []string{"--network", dockNetwork}
}

// publishArgs returns the arguments that publish the ports of every path's
// workload.
func publishArgs(p suite.Path) []string {
	if p.Direct || p.Driver == model.DriverHost {
		return nil
	}
	ports := fmt.Sprintf("%d-%d", LoadPort, LastPort)
	return []string{"--publish", ports + ":" + ports, "--publish", ports + ":" + ports + "/udp"}
}

func (d *dock) close() error {
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

// control returns the path of a container's control socket, for this process and
// in the container.
func (d *dock) control(name string) (ours, theirs string) {
	return d.engine.Root() + filepath.Join(dockControls, name), filepath.Join(boxControls, name)
}
