package flow

import (
	"net/netip"

	"fairlead/internal/kernel"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
)

// World answers questions about this host and its namespaces, each named by
// its path; the empty path is the host's own.
type World interface {
	// Name is how people call a namespace: host, or the sandbox's name.
	Name(netns string) string
	Links(netns string) ([]kernel.NetLink, error)
	Route(netns string, q kernel.RouteQuery) (kernel.RouteFound, error)
	// Selectors are the fields that policy routing rules compare.
	Selectors(netns string) (kernel.RouteSelectors, error)
	// Neighbours are a namespace's neighbours and the forwarding tables of its
	// bridges.
	Neighbours(netns string) (neighbours, forwarding []kernel.NeighbourEntry, err error)
	// Foreign are the programs and filters of others at links.
	Foreign(netns string) ([]kernel.Foreign, error)
	// Rules are a namespace's rules, and what could not be read of them.
	Rules(netns string) (rules.Ruleset, []string, error)
	Listeners(netns string) ([]kernel.Listener, error)
	// Setting is a sysctl by its dotted name; empty where there is none.
	Setting(netns, name string) string
	// EBPFState is what our eBPF programs on the host lead.
	EBPFState() (kernel.EBPFState, error)
	// Peer finds the other end of a veth, or what a link branches from.
	Peer(netns string, l kernel.NetLink) (End, bool)
	// Branches are the links that branch from one of a namespace.
	Branches(netns string, l kernel.NetLink) []End
	// Services are the virtual services that are in the kernel, and Failed those
	// of the daemon that are not.
	Services() ([]Service, error)
	Failed() []Known
	// Published are the ports that the daemon has published on the host.
	Published() []Published
	// ProxyTarget is where the process leads what the socket takes, if it is a
	// proxy of Docker's.
	ProxyTarget(l kernel.Listener) (netip.AddrPort, bool)
	// Holder finds the namespace that has an address, the host's not counted.
	Holder(a netip.Addr) (netns string, ok bool)
	// Find resolves a sandbox by what a user types.
	Find(name string) (netns string, err error)
}

// End is a link in a namespace.
type End struct {
	Netns string
	kernel.NetLink
}

// Has reports whether the link has the address.
func (e End) Has(a netip.Addr) bool { return hasAddress(e.NetLink, a) }

func hasAddress(l kernel.NetLink, a netip.Addr) bool {
	for _, p := range l.Addresses {
		if p.Addr() == a {
			return true
		}
	}
	return false
}

// Published is a publish with what is known of its endpoint.
type Published struct {
	model.Publish
	Driver    model.Driver
	Addresses []netip.Addr
}

// target is where the proxy leads the publish: to the address of the host
// address's family, or of the other (see publish.Listener).
func (p Published) target(port uint16) (netip.AddrPort, bool) {
	e := model.Endpoint{Addresses: p.Addresses}
	v4 := !p.HostAddr.Is6()
	a, ok := e.Address(v4)
	if !ok {
		a, ok = e.Address(!v4)
	}
	return netip.AddrPortFrom(a, p.Ports.First+(port-p.HostPorts.First)), ok
}

// covers reports whether the publish is for the port of that address.
func (p Published) covers(proto model.Proto, at netip.AddrPort) bool {
	return p.Proto == proto && p.HostPorts.Overlaps(model.Port(at.Port())) && p.Accepts(at.Addr())
}
