package traefik

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// locator finds the addresses of a container's servers.
type locator struct {
	*Container
	opt      *DockerOptions
	settings settings
	// others are all containers by ID, for those that share a network namespace.
	others map[string]*Container
	// warn reports what the locator decides by itself.
	warn func(format string, args ...any)
}

// serverAddress returns the address and port of a container's server. The port of a
// label precedes; without one it is the lowest exposed port of the protocol.
func (l *locator) serverAddress(port, protocol string) (string, error) {
	port, err := l.port(port, protocol)
	if err != nil {
		return "", err
	}
	if l.opt.UseBindPortIP {
		for _, p := range l.Published {
			host := p.Host.Addr()
			same := strconv.Itoa(int(p.Number)) == port && p.Protocol == protocol
			if same && host.IsValid() && !host.IsUnspecified() {
				return p.Host.String(), nil
			}
		}
	}
	addr, err := l.address(l.Container, l.network(), 0)
	if err != nil {
		return "", &addressError{err}
	}
	return net.JoinHostPort(addr.String(), port), nil
}

// addressError says that a container has no address that the gateway reaches. The
// service stays, without the container's server: it may get an address later.
type addressError struct{ error }

// network is the name of the network to use: that of the label, or the provider's.
func (l *locator) network() string { return cmp.Or(l.settings.network(), l.opt.Network) }

func (l *locator) port(label, protocol string) (string, error) {
	if label != "" {
		if n, err := strconv.ParseUint(label, 10, 16); err != nil || n == 0 {
			return "", fmt.Errorf("port %q: want a number from 1 to 65535", label)
		}
		return label, nil
	}
	if len(l.ExposedPorts) == 0 {
		return "", errors.New("the container exposes no port: give the port with the label " +
			"loadbalancer.server.port of the service")
	}
	ports := slices.DeleteFunc(slices.Clone(l.ExposedPorts), func(p Port) bool { return p.Protocol != protocol })
	if len(ports) == 0 {
		ports = l.ExposedPorts
	}
	lowest := slices.MinFunc(ports, func(a, b Port) int { return cmp.Compare(a.Number, b.Number) })
	return strconv.Itoa(int(lowest.Number)), nil
}

// joinedMode is the begin of the network mode of a container that shares the network
// namespace of another one.
const joinedMode = "container:"

// maxJoined is how many containers may share a network namespace via each other.
const maxJoined = 8

// address returns the address of a container, from the network with the given name if
// the container has it.
func (l *locator) address(c *Container, network string, joined int) (netip.Addr, error) {
	if l.settings.Docker.LBSwarm || l.settings.Swarm.LBSwarm {
		c = &Container{Networks: c.VirtualIPs}
	}
	if addrs, ok := c.Networks[network]; ok && network != "" {
		return firstAddress(addrs, network)
	}
	if other, ok := strings.CutPrefix(c.NetworkMode, joinedMode); ok {
		target := l.others[other]
		if target == nil || joined == maxJoined {
			return netip.Addr{}, fmt.Errorf("the container shares the network of container %s, which "+
				"does not run", other)
		}
		var r reporter
		settings := r.decodeSettings(r.labelTree(target.Labels))
		return l.address(target, cmp.Or(settings.network(), network), joined+1)
	}
	if c.NetworkMode == "host" {
		switch {
		case c.NodeIP.IsValid():
			return c.NodeIP, nil
		case l.opt.HostAddress.IsValid():
			return l.opt.HostAddress, nil
		}
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	return l.sharedAddress(c, network)
}

// sharedAddress returns the address on a network that the gateway shares with the
// container. Wanted is the network that the container does not have, or "".
func (l *locator) sharedAddress(c *Container, wanted string) (netip.Addr, error) {
	names := slices.Sorted(maps.Keys(c.Networks))
	if project := c.Labels[composeProject]; wanted != "" && slices.Contains(names, project+"_"+wanted) {
		l.warn("there is no network %q at the container: %s_%s is in use", wanted, project, wanted)
		return firstAddress(c.Networks[project+"_"+wanted], project+"_"+wanted)
	}
	shared := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return name == "ingress" || l.opt.GatewayNetworks != nil && !slices.Contains(l.opt.GatewayNetworks, name)
	})
	switch {
	case len(names) == 0:
		return netip.Addr{}, errors.New("the container has no network: connect it to a network of the gateway")
	case len(shared) == 0:
		return netip.Addr{}, fmt.Errorf("the gateway shares no network with the container: the container has %s, the "+
			"gateway has %s; connect one of them to the other's network", strings.Join(names, ", "),
			strings.Join(l.opt.GatewayNetworks, ", "))
	case wanted != "":
		l.warn("there is no network %q at the container, which has %s: %s is in use", wanted, strings.Join(names, ", "),
			shared[0])
	case len(shared) > 1:
		l.warn("the gateway reaches the container via several networks, %s: %s is in use; choose one with the label "+
			"traefik.docker.network", strings.Join(shared, ", "), shared[0])
	}
	return firstAddress(c.Networks[shared[0]], shared[0])
}

// firstAddress returns an address of a container on a network, IPv4 first.
func firstAddress(addrs []netip.Addr, network string) (netip.Addr, error) {
	for _, a := range addrs {
		if a.Is4() {
			return a, nil
		}
	}
	for _, a := range addrs {
		if a.IsValid() {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("the container has no address on the network %q", network)
}
