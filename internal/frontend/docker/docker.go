// Package docker is a network and an IPAM driver of a Docker engine (the v1
// plugin protocol: HTTP with JSON over a unix socket). It turns the engine's
// calls into calls of the daemon, and decides nothing about paths.
//
// # Theory of operation
//
// Docker finds the socket in /run/docker/plugins by the driver's name. A
// container's attachment is one of the daemon's guests: CreateEndpoint reserves
// it with the addresses that Docker has leased, Join makes its link on the host,
// Docker takes the link's end into the sandbox and gives it its addresses and
// routes, and Leave and DeleteEndpoint undo the two. Ports are published when
// Docker says that the endpoint is its sandbox's gateway, all in one step.
//
//	network create  RequestPool, RequestAddress, CreateNetwork
//	run             RequestAddress, CreateEndpoint, Join, ProgramExternalConnectivity
//	stop            RevokeExternalConnectivity, Leave, DeleteEndpoint, ReleaseAddress
//
// Docker's client has no time limit, and holds its own locks meanwhile: nothing
// here asks Docker anything. Every call may come twice, or for what is not
// there, after a failure or a restart of either side; both are well.
//
// What is remembered where: networks, with what they add to their publishes,
// and pools outlive a reboot, as Docker never tells of them again. Endpoints and
// their addresses end with the boot, as their containers do: after one, Docker
// takes the old ones away and makes new ones. When Docker gives away an address
// that a guest has, that guest is stale and goes: Docker was killed before it
// had noted it.
//
// Docker cannot report the end of a container while either side is down. The
// daemon then removes the endpoint itself (package daemon, external.go): when it
// starts, when Docker starts, and when the container's last process ends. An
// endpoint that needs a host port of another one displaces it, unless that one is
// alive or starting.
package docker

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"sync"

	"fairlead/internal/daemon"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// Name is what the driver is called in `docker network create -d`, if the
// socket is in the usual place.
const Name = "fairlead"

// Socket is where Docker looks for the driver of that name.
const Socket = "/run/docker/plugins/" + Name + ".sock"

// maxBody bounds a request, in bytes. One that publishes every port there is,
// twice, one binding a port, fits in.
const maxBody = 32 << 20

// Daemon is what is behind the driver; *daemon.Daemon has it.
type Daemon interface {
	CreateNetwork(n model.Network, dry bool) (daemon.Result, error)
	RemoveNetwork(name string) (daemon.Result, error)
	Networks() []model.Network
	Attachments() []daemon.View
	Reserve(model.Attachment) (engine.SandboxConfig, error)
	Join(name, path string) (model.Endpoint, engine.SandboxConfig, error)
	Expose(name string, publishes []model.Publish) error
	Leave(name string) error
	RemoveDead()
	Displace(name string) (bool, error)
	Detach(context.Context, daemon.DetachRequest) (daemon.Result, error)
}

// Notes keep JSON by keys; *store.Notes does.
type Notes interface {
	All() map[string]json.RawMessage
	// Put writes the notes of those keys; nil deletes one.
	Put(map[string]any) error
}

// Host is what the driver asks of the host that it is on.
type Host interface {
	// HasLink reports whether there is a link of that name.
	HasLink(name string) bool
	// Ranges returns those that the host's routes and addresses have.
	Ranges() ([]netip.Prefix, error)
	// CanBind reports whether a program of the host can bind the address.
	CanBind(netip.Addr) (bool, error)
	// LocalPorts returns the ports that the kernel picks from for programs that
	// name none.
	LocalPorts() (model.PortRange, error)
}

// Config is what a driver is made of.
type Config struct {
	Daemon Daemon
	// Lasting notes outlive a reboot, Passing ones do not.
	Lasting, Passing Notes
	Host             Host
	// Caller returns the pid of the engine that makes a call, 0 if it is unknown.
	Caller func(context.Context) (pid int)
	Log    *slog.Logger
}

// Driver answers Docker.
type Driver struct {
	cfg Config
	// choosing is held while host ports or addresses are chosen.
	choosing sync.Mutex
	// last is the port that was chosen last.
	last uint16
}

// New returns a driver.
func New(cfg Config) *Driver { return &Driver{cfg: cfg} }
