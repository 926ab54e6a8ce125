// Package docker implements a network driver and an IPAM driver for a Docker
// engine (plugin protocol v1: HTTP with JSON over a unix socket). It turns the
// engine's calls into calls of the daemon. It does not choose paths.
//
// # Theory of operation
//
// Docker finds the socket in /run/docker/plugins by the driver's name. A
// container's attachment is an external endpoint of the daemon. CreateEndpoint
// reserves it with the addresses that Docker has leased. Join creates its link on
// the host. Docker moves one end of the link into the sandbox and sets its
// addresses and routes. Leave and DeleteEndpoint undo Join and CreateEndpoint. When
// Docker reports that the endpoint is its sandbox's gateway, all ports are
// published in one step.
//
//	network create  RequestPool, RequestAddress, CreateNetwork
//	run             RequestAddress, CreateEndpoint, Join, ProgramExternalConnectivity
//	stop            RevokeExternalConnectivity, Leave, DeleteEndpoint, ReleaseAddress
//
// Docker's client has no timeout, and Docker keeps its own locks during a call. While
// it starts, it answers no request before it has restored its containers, and it calls
// the driver for each of them. Therefore the driver never asks Docker: the context of
// a call refuses requests to engines (dockerapi.Answering), and the daemon's methods
// that the driver calls need none. After a failure or a restart of either side, a call
// can come twice, or for an object that does not exist. Both succeed.
//
// Networks, their settings for publishes, and pools survive a reboot, because
// Docker reports them only once. Endpoints and their addresses end with the boot,
// as their containers do: after a reboot Docker deletes the old endpoints and
// creates new ones. If Docker leases an address that an external endpoint has,
// that endpoint is stale, because Docker was killed before it saved the endpoint.
// The stale endpoint is removed.
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

	"fairlead/internal/api"
	"fairlead/internal/engine"
	"fairlead/internal/model"
)

// Name is the driver's name in `docker network create -d`, if the socket is at its
// default path.
const Name = "fairlead"

// Socket is the path at which Docker looks for a driver with that name.
const Socket = "/run/docker/plugins/" + Name + ".sock"

// maxBody is the maximum size of a request in bytes. A request that publishes all
// ports for both families, with one binding per port, fits.
const maxBody = 32 << 20

// Daemon is the part of the daemon that the driver calls. *daemon.Daemon
// implements it.
type Daemon interface {
	CreateNetwork(n model.Network, dry bool) (api.Result, error)
	RemoveNetwork(name string) (api.Result, error)
	Networks() []model.Network
	Attachments() []api.View
	Reserve(model.Attachment) (engine.SandboxConfig, error)
	Join(name, path string) (model.Endpoint, engine.SandboxConfig, error)
	Expose(name string, publishes []model.Publish) error
	Leave(name string) error
	RemoveDead()
	Displace(name string) (bool, error)
	// Remove removes the attachment with that name, and asks no engine.
	Remove(name string) error
}

// Notes stores JSON values by key. *store.Notes implements it.
type Notes interface {
	All() map[string]json.RawMessage
	// Put writes the values; nil deletes a key.
	Put(map[string]any) error
}

// Host is what the driver needs from its host.
type Host interface {
	// HasLink reports whether the host has a link with that name.
	HasLink(name string) bool
	// Ranges returns the address ranges of the host's routes and addresses.
	Ranges() ([]netip.Prefix, error)
	// CanBind reports whether a program of the host can bind the address.
	CanBind(netip.Addr) (bool, error)
	// LocalPorts returns the range of ephemeral ports
	// (net.ipv4.ip_local_port_range).
	LocalPorts() (model.PortRange, error)
}

// Config holds what a driver needs.
type Config struct {
	Daemon Daemon
	// Lasting survives a reboot, Passing does not.
	Lasting, Passing Notes
	Host             Host
	Cluster          Cluster
	// Caller returns the PID of the engine that makes a call, or 0 if it is unknown.
	Caller func(context.Context) (pid int)
	// ContainerOf returns the name of the container that has an endpoint, empty if
	// it is not known. It must not ask Docker, which waits for the driver.
	ContainerOf func(endpoint string) string
	Log         *slog.Logger
}

// Driver answers Docker's calls. Its methods can be called concurrently.
type Driver struct {
	cfg Config
	// choosing serializes the choice of host ports and addresses.
	choosing sync.Mutex
	// last is the port that was chosen last, and leased are the addresses of the cluster's networks; choosing
	// protects them.
	last   uint16
	leased map[string]netip.Addr
}

// New returns a driver.
func New(cfg Config) *Driver { return &Driver{cfg: cfg, leased: map[string]netip.Addr{}} }
