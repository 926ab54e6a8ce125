package traefik

import (
	"net/netip"
	"strings"
	"time"
	"unicode"

	"fairlead/internal/model/gateway"
)

// Container is what the labels of a container are completed with. A task of a Swarm
// service is a container with the labels of the service.
type Container struct {
	ID string
	// Name is without the first "/" of Docker's API.
	Name    string
	Created time.Time
	Labels  map[string]string
	Running bool
	// Health is "", "starting", "healthy" or "unhealthy".
	Health string
	// Stopping means that the container has received its stop signal: its servers get
	// no new requests.
	Stopping bool
	// Stale is why the container may have changed without being known; "" if it is as it is here.
	Stale string
	// ExposedPorts are those of the image and of the container's settings.
	ExposedPorts []Port
	// Networks are the addresses by the name of the network.
	Networks map[string][]netip.Addr
	// NetworkMode is as in Docker's API: "host" and "container:ID" are understood.
	NetworkMode string
	Published   []Published
	// Service, NodeIP and VirtualIPs (by network) are those of a Swarm service and of the
	// task's node.
	Service    string
	NodeIP     netip.Addr
	VirtualIPs map[string][]netip.Addr
}

// Port is a port of a container. Protocol is "tcp" or "udp".
type Port struct {
	Number   uint16
	Protocol string
}

// Published is a port of a container that is published at an address of the host.
type Published struct {
	Port
	Host netip.AddrPort
}

// DockerOptions say how containers become routers and services.
type DockerOptions struct {
	gateway.Docker
	// GatewayNetworks are the networks of the gateway's own container. Nil means that
	// the gateway runs on the host, which reaches all networks.
	GatewayNetworks []string
	// HostAddress is the address of containers in the host's network namespace. Invalid
	// means 127.0.0.1.
	HostAddress netip.Addr
}

// ready reports whether the container's servers take new requests.
func (c *Container) ready() bool {
	return c.Running && !c.Stopping && (c.Health == "" || c.Health == "healthy")
}

// baseName is the name of the container's default router and service: as in Traefik,
// SERVICE_PROJECT of a Compose project, or else the name of the Swarm service or of
// the container.
func (c *Container) baseName() string {
	name := c.Name
	if c.Service != "" {
		name = c.Service
	}
	project, service := c.Labels[composeProject], c.Labels[composeService]
	if project != "" && service != "" {
		name = service + "_" + project
	}
	return normalize(name)
}

// normalize replaces each run of characters other than letters and digits with "-",
// and removes them at both ends.
func normalize(name string) string {
	return strings.Join(strings.FieldsFunc(name, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsNumber(c)
	}), "-")
}
