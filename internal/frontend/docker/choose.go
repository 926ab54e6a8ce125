package docker

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// chooser chooses host ports for one endpoint's ports to which Docker gave none.
// It omits ports that other endpoints of the same container publish already.
type chooser struct {
	// last is the port that was chosen last for any endpoint. The next choice
	// begins after it, so that a port that became free is not reused at once.
	last *uint16
	// local is the range of ephemeral ports, from which ports are chosen.
	local  model.PortRange
	all    []api.View
	me     api.View
	wanted []span
	// refused are publishes that the daemon refused.
	refused []model.Publish
	// chosen are the publishes of the last choice that can have other host ports.
	chosen []model.Publish
}

// errNoPort means that all ports of a range are in use.
var errNoPort = errors.New("no host port is free")

// open reports whether any host port is still to be chosen.
func (c *chooser) open() bool {
	for _, s := range c.wanted {
		if !s.fixed() {
			return true
		}
	}
	return false
}

// choose returns the publishes with their host ports. Returns errNoPort if a range
// has no free port.
func (c *chooser) choose() ([]model.Publish, error) {
	c.chosen = nil
	var all []model.Publish
	for _, s := range c.wanted {
		p := s.publish(s.host.First)
		if !s.fixed() {
			var err error
			if p, err = c.pick(s, all); err != nil {
				return nil, err
			}
			c.chosen = append(c.chosen, p)
		}
		all = append(all, c.unpublished(p)...)
	}
	return all, nil
}

// avoid excludes the chosen publish that collides with taken, and reports whether
// another choice is possible.
func (c *chooser) avoid(taken model.Publish) bool {
	for _, p := range c.chosen {
		if p.Collides(taken) {
			c.refused = append(c.refused, p)
			return true
		}
	}
	return false
}

// owners returns the other endpoints that publish a port of p.
func (c *chooser) owners(p model.Publish) []string {
	var names []string
	for _, a := range c.all {
		if a.Name != c.me.Name && slices.ContainsFunc(a.Publishes,
			func(o api.PublishedView) bool { return p.Collides(o.Publish) }) {
			names = append(names, a.Name)
		}
	}
	return names
}

// pick chooses host ports for a span: the ports that it has already, or free ones.
func (c *chooser) pick(s span, mine []model.Publish) (model.Publish, error) {
	for _, p := range c.me.Publishes {
		if s.same(p.Publish) && c.free(p.Publish, mine) {
			return s.publish(p.HostPorts.First), nil
		}
	}
	from := s.host
	if from.First == 0 {
		from = c.local
	}
	count := from.Len() - s.length + 1
	start := 0
	if s.host.First == 0 && from.First <= *c.last && *c.last < from.Last {
		start = int(*c.last-from.First) + 1
	}
	for i := range max(count, 0) {
		p := s.publish(from.First + uint16((start+i)%count))
		if c.free(p, mine) {
			if s.host.First == 0 {
				*c.last = p.HostPorts.Last
			}
			return p, nil
		}
	}
	return model.Publish{}, fmt.Errorf("publish ports %s/%s of %s: %w in %s", s.publish(1).Ports, s.proto, c.me.Name,
		errNoPort, from)
}

// free reports whether no known publish has the host ports.
func (c *chooser) free(p model.Publish, mine []model.Publish) bool {
	for _, inUse := range [][]model.Publish{mine, c.refused} {
		if slices.ContainsFunc(inUse, p.Collides) {
			return false
		}
	}
	for _, a := range c.all {
		for _, o := range a.Publishes {
			if a.Name != c.me.Name && p.Collides(o.Publish) {
				return false
			}
		}
	}
	return true
}

// unpublished returns the part of a publish, per address family, that no other
// endpoint of the container has. Docker can make one endpoint the container's
// gateway for IPv4 and another one for IPv6.
func (c *chooser) unpublished(p model.Publish) []model.Publish {
	parts := []model.Publish{p}
	if !p.HostAddr.IsValid() && c.elsewhere(p) {
		parts = []model.Publish{p, p}
		parts[0].HostAddr, parts[1].HostAddr = netip.IPv4Unspecified(), netip.IPv6Unspecified()
	}
	var left []model.Publish
	for _, part := range parts {
		if !c.elsewhere(part) {
			left = append(left, part)
		}
	}
	return left
}

// elsewhere reports whether another endpoint of the container has the publish.
func (c *chooser) elsewhere(p model.Publish) bool {
	for _, a := range c.all {
		if a.Name == c.me.Name || a.Origin != model.FromDocker || a.Sandbox != c.me.Sandbox {
			continue
		}
		for _, o := range a.Publishes {
			if p.Collides(o.Publish) && p.Ports.Overlaps(o.Ports) {
				return true
			}
		}
	}
	return false
}
