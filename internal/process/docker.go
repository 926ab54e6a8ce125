package process

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"fairlead/internal/cgroup"
	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/docker"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"
)

// dockerHost implements docker.Host.
type dockerHost struct{ *rtnl.Reader }

// HasLink implements docker.Host.
func (h dockerHost) HasLink(name string) bool {
	links, err := h.Links([]string{name})
	_, there := links[name]
	return err == nil && there
}

// LocalPorts implements docker.Host.
func (h dockerHost) LocalPorts() (r model.PortRange, err error) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Sscan(string(text), &r.First, &r.Last)
	}
	if err != nil {
		return r, fmt.Errorf("read %s: %w", file, err)
	}
	return r, nil
}

// listenDocker creates the socket for Docker, and the directory in which Docker looks
// for it if that does not exist yet.
func listenDocker(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of Docker's plugins: %w", err)
	}
	return admin.Listen(path)
}

// dockerSocketKey is the key under which the path of Docker's socket is stored.
const dockerSocketKey = "docker socket"

// dockerSocketOf returns the path of the socket for Docker, and stores it for the next
// daemon. A daemon that has networks of Docker always serves Docker, also if a command
// started it, unless opt.NoDocker is set.
func dockerSocketOf(opt Options, files *store.File) (string, error) {
	path := opt.Docker
	if l := opt.Sockets[dockerSocket]; l != nil {
		path = l.Addr().String()
	}
	if path != "" {
		return opt.Docker, files.Lasting().Put(map[string]any{dockerSocketKey: path})
	}
	desired, err := files.Desired()
	if err != nil || !docker.Stands(files.Lasting().All()) && !slices.ContainsFunc(desired.Networks,
		func(n model.Network) bool { return n.Origin == model.FromDocker }) {
		return "", err
	}
	if opt.NoDocker {
		opt.Log.Warn("Docker cannot change its networks: --docker-socket is empty, and the service manager passed " +
			"no socket")
		return "", nil
	}
	path = docker.Socket
	if raw, noted := files.Lasting().All()[dockerSocketKey]; noted {
		if err := json.Unmarshal(raw, &path); err != nil {
			return "", fmt.Errorf("read the path of Docker's socket: %w", err)
		}
	}
	return path, nil
}

// dockerLabels returns a task that publishes containers on the host's network
// according to their labels. If it fails, it logs the error, and the daemon continues.
func dockerLabels(d *daemon.Daemon, files *store.File, opt Options) func(context.Context) error {
	return func(ctx context.Context) error {
		root, err := cgroup.Root()
		if err == nil {
			labels := docker.Labels{Workloads: d, Engine: sandbox.Docker(), Lasting: files.Lasting(),
				Passing: files.Passing(), Root: root, Log: opt.Log}
			err = labels.Run(ctx)
		}
		if err != nil {
			opt.Log.Error("containers on the host's network are not published", "error", err)
		}
		<-ctx.Done()
		return nil
	}
}

// dockerTasks returns the tasks that follow a Docker engine.
func dockerTasks(d *daemon.Daemon, files *store.File, names *sandbox.EndpointNames,
	opt Options) []func(context.Context) error {
	return []func(context.Context) error{dockerLabels(d, files, opt), dockerNames(names, opt)}
}

// dockerNames returns a task that keeps the names of containers up to date, for the errors of the driver.
func dockerNames(names *sandbox.EndpointNames, opt Options) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := names.Follow(ctx, sandbox.Docker()); err != nil {
			opt.Log.Error("errors do not have the names of containers", "error", err)
		}
		<-ctx.Done()
		return nil
	}
}

// dockerDriver returns the handler of a Docker engine's calls. The cluster takes its leases into account.
func dockerDriver(d *daemon.Daemon, files *store.File, host *kernel.Host, node *node, names *sandbox.EndpointNames,
	opt Options) http.Handler {
	driver := docker.New(docker.Config{
		Daemon: d, Lasting: files.Lasting(), Passing: files.Passing(), Host: dockerHost{host.Net()},
		Cluster: node.networks, Caller: admin.CallerPID,
		ContainerOf: names.Of, Log: opt.Log,
	})
	node.networks.LeasesOf(driver)
	return admin.RootOnly(driver.Handler())
}
