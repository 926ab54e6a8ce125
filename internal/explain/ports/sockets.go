package ports

import (
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/explain/facts"
	"fairlead/internal/model"
)

// listeners adds each socket to the port for which it reserves or proxies, or
// adds a new port for it.
func (b *builder) listeners() {
	translated := len(b.ports)
	for _, l := range b.Listeners {
		for _, at := range addresses(l) {
			b.listener(l, at, translated)
		}
	}
}

// addresses returns the socket's address, or two addresses if :: serves both
// families.
func addresses(l facts.Listener) []netip.Addr {
	at := l.At.Addr()
	if at == netip.IPv6Unspecified() && !l.V6Only {
		return []netip.Addr{netip.IPv4Unspecified(), at}
	}
	return []netip.Addr{at}
}

func (b *builder) listener(l facts.Listener, at netip.Addr, translated int) {
	p := Port{Proto: l.Proto, Addresses: []netip.Addr{at}, Ports: model.Port(l.At.Port()), Modes: []Mode{Host},
		Link: l.Link, bound: true}
	if l.Process.PID != 0 {
		p.Process = &Process{l.Process.PID, l.Process.Command}
	}
	if l.Process.Container != "" {
		p.Container = &Container{ID: l.Process.Container}
	}
	front := slices.IndexFunc(b.ports[:translated], func(o Port) bool { return o.covers(p) })
	proxy, docker := l.DockerProxy()
	switch {
	case docker:
		p.Modes, p.To, p.ToPorts = []Mode{DockerProxy}, proxy.To.Addr(), model.Port(proxy.To.Port())
	case l.OurProxy():
		p.Modes = []Mode{Proxy}
	default:
		b.granted(l, &p)
	}
	if front < 0 || !(docker || l.OurProxy() || l.Dockerd()) {
		if !slices.ContainsFunc(b.ports[translated:], p.twin) {
			b.ports = append(b.ports, p)
		}
		return
	}
	f := &b.ports[front]
	f.bound = f.bound || !l.Dockerd() // dockerd only reserves the port, and answers no client
	if f.Process == nil {
		f.Process = p.Process
	}
	if docker && !slices.Contains(f.Modes, DockerProxy) {
		f.Modes = append(f.Modes, DockerProxy)
	}
}

// twin reports whether o is another socket of the same program for the same port
// (SO_REUSEPORT).
func (p Port) twin(o Port) bool {
	return p.Proto == o.Proto && p.Ports == o.Ports && p.Addresses[0] == o.Addresses[0] && p.Link == o.Link &&
		p.Process != nil &&
		o.Process != nil &&
		p.Process.Command == o.Process.Command && (p.Container == nil) == (o.Container == nil) &&
		(p.Container == nil || *p.Container == *o.Container)
}

// covers reports whether packets to the port of the socket o reach p first.
func (p Port) covers(o Port) bool {
	at := p.Addresses[0]
	return p.Proto == o.Proto && p.Ports.Overlaps(o.Ports) && at.Is4() == o.Addresses[0].Is4() &&
		(at.IsUnspecified() || at == o.Addresses[0])
}

// granted sets the mode socket and the requested port if a grant has assigned the
// socket's port.
func (b *builder) granted(l facts.Listener, p *Port) {
	for _, g := range b.Grants {
		if g.Proto == l.Proto && g.Ports.Overlaps(p.Ports) && l.Cgroup != "" && strings.HasSuffix(g.Cgroup, l.Cgroup) {
			p.Modes = []Mode{Socket}
			p.ToPorts = model.Port(g.Own.First + (l.At.Port() - g.Ports.First))
			return
		}
	}
}

// containerAt returns the container that has one of the addresses; nil if no
// engine reports one.
func (b *builder) containerAt(all []netip.Addr) *Container {
	for _, c := range b.Containers {
		for _, n := range c.Networks {
			if slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return slices.Contains(all, a) }) {
				return &Container{c.ID, c.Name}
			}
		}
	}
	return nil
}

// target returns the address to which the proxy connects for clients of a family: one
// of the same family if there is any.
func target(all []netip.Addr, v4 bool) (at netip.Addr) {
	for _, a := range all {
		if !at.IsValid() || a.Is4() == v4 {
			at = a
		}
	}
	return at
}

// findOwner sets the port's sandbox, network and container, from its target or
// its process.
func (b *builder) findOwner(p *Port) {
	for _, v := range b.known {
		for _, pub := range v.Publishes {
			same := p.To.IsValid() && slices.Contains(v.AllAddresses(), p.To) ||
				p.published() && pub.Proto == p.Proto && pub.HostPorts.Overlaps(p.Ports) && pub.Accepts(p.Addresses[0])
			ended := v.Status == api.Ended
			if !same || ended && p.Sandbox != "" && !p.Ended { // another sandbox has the address now
				continue
			}
			p.Sandbox, p.Network, p.Ended = v.Name, v.Network, ended
			if !p.To.IsValid() && p.published() { // only the daemon knows the targets of the proxy
				p.To = target(v.AllAddresses(), p.Addresses[0].Is4())
			}
			if p.ToPorts == (model.PortRange{}) {
				p.ToPorts = model.Port(pub.Ports.First + (p.Ports.First - pub.HostPorts.First))
			}
			if name, ok := strings.CutPrefix(v.Ref, "container:"); ok {
				p.Container = &Container{Name: name}
			} else if v.Origin == model.FromDocker {
				p.Container = b.containerAt(v.AllAddresses())
			}
		}
	}
	for _, c := range b.Containers {
		is := p.Container != nil && (c.ID == p.Container.ID || p.Container.ID == "" && c.Name == p.Container.Name)
		for _, n := range c.Networks {
			if is && c.HostNetwork || p.To.IsValid() && slices.Contains(n.Addresses, p.To) {
				is, p.Network = true, n.Name
			}
		}
		if is {
			p.Container = &Container{c.ID, c.Name}
		}
	}
}
