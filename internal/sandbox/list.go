package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/dockerapi"
)

// Listed is a container as its engine lists it.
type Listed struct {
	ID      string
	Name    string
	Image   string
	Running bool
	// HostNetwork says that it is in the host's network namespace.
	HostNetwork bool
	// Networks are in no order.
	Networks []OnNetwork
	Ports    []ListedPort
}

// OnNetwork is a container's connection to a network of the engine.
type OnNetwork struct {
	Name      string
	Addresses []netip.Addr
}

// ListedPort is a port that the engine has published.
type ListedPort struct {
	// Addr and Host are the address and the port on the host.
	Addr  netip.Addr
	Proto string
	Host  uint16
	// Private is the port in the container.
	Private uint16
}

// Containers returns the running containers of all engines that answer. It
// returns ErrNoEngine if no engine runs.
func (f Finder) Containers(ctx context.Context) ([]Listed, error) {
	var all []Listed
	var errs []error
	missing := 0
	for _, socket := range f.Engines {
		running, err := dockerapi.Unix(socket).Running(ctx, nil)
		if dockerapi.NotRunning(err) {
			missing++
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("ask the container engine at %s: %w", socket, err))
		}
		for _, c := range running {
			all = append(all, listed(c))
		}
	}
	if missing == len(f.Engines) {
		return nil, ErrNoEngine
	}
	return all, errors.Join(errs...)
}

// listed returns a container of an engine's list.
func listed(c dockerapi.Listed) Listed {
	out := Listed{ID: dockerapi.Short(c.ID), Name: c.Name(), Image: c.Image, Running: c.State == "running",
		HostNetwork: c.HostConfig.NetworkMode == "host"}
	for name, n := range c.NetworkSettings.Networks {
		out.Networks = append(out.Networks, OnNetwork{name, n.Addresses()})
	}
	for _, p := range c.Ports {
		if p.PublicPort == 0 {
			continue
		}
		addr, _ := netip.ParseAddr(p.IP)
		out.Ports = append(out.Ports, ListedPort{addr, p.Type, p.PublicPort, p.PrivatePort})
	}
	return out
}
