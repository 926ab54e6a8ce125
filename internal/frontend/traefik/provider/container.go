package provider

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/dockerapi"
	"fairlead/internal/frontend/traefik"
)

// container returns what the labels are completed with.
func (d *Docker) container(c *dockerapi.Inspected) *traefik.Container {
	t := &traefik.Container{ID: c.ID, Name: c.PlainName(), Created: dockerapi.Time(c.Created), Labels: c.Config.Labels,
		Health: c.Health(), Running: c.State.Running, Stopping: d.isStopping(c.ID),
		Networks: map[string][]netip.Addr{}, NetworkMode: c.HostConfig.NetworkMode}
	for _, text := range slices.Sorted(maps.Keys(c.Config.ExposedPorts)) {
		if port, ok := parsePort(text); ok {
			t.ExposedPorts = append(t.ExposedPorts, port)
		}
	}
	for name, at := range c.NetworkSettings.Networks {
		if all := at.Addresses(); all != nil {
			t.Networks[name] = all
		}
	}
	for text, hosts := range c.NetworkSettings.Ports {
		port, ok := parsePort(text)
		for _, h := range hosts {
			a, errA := netip.ParseAddr(h.HostIP)
			n, errN := strconv.ParseUint(h.HostPort, 10, 16)
			if ok && errA == nil && errN == nil {
				t.Published = append(t.Published, traefik.Published{Port: port, Host: netip.AddrPortFrom(a, uint16(n))})
			}
		}
	}
	return t
}

// parsePort parses PORT/PROTOCOL.
func parsePort(text string) (traefik.Port, bool) {
	number, protocol, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	return traefik.Port{Number: uint16(n), Protocol: protocol}, err == nil
}

// networks returns the names of the container's networks, nil if it uses that of the host.
func networks(c *dockerapi.Inspected) []string {
	if c.HostConfig.NetworkMode == "host" {
		return nil
	}
	return slices.Sorted(maps.Keys(c.NetworkSettings.Networks))
}

// ownNetworks returns the networks of the container that the gateway runs in, nil if
// it runs in none that the engine knows.
func (d *Docker) ownNetworks() []string {
	if _, ok := d.known[d.own]; !ok {
		d.own = d.findOwn()
	}
	own := d.known[d.own]
	return networks(&own)
}

// findOwn returns the ID of the container that the gateway runs in, or "".
func (d *Docker) findOwn() string {
	for id := range d.known {
		if d.self.isNamed(id) {
			return id
		}
	}
	for id, c := range d.known {
		if d.self.in(&c) {
			return id
		}
	}
	return ""
}
