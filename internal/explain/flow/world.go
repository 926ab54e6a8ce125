package flow

import (
	"net/netip"

	"fairlead/internal/kernel/ebpf/datapath"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/rtnl"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// World answers questions about this host and its namespaces. The path of a
// namespace identifies it; the empty path is the host's namespace.
type World struct {
	Namespaces Namespaces
	Links      Links
	Routes     Routes
	Settings   Settings
	Filters    Filters
	Ports      Ports
	Services   Services
	Programs   Programs
}

// Namespaces are the host and its sandboxes.
type Namespaces interface {
	// Name returns the name that users know: host, or the sandbox's name.
	Name(netns string) string
	// Holder returns the namespace that has an address, and whether it is linked to the host, directly or
	// through other namespaces. The host's does not count.
	Holder(a netip.Addr) (netns string, linked, ok bool)
	// Find resolves a sandbox by any name that users may type. It returns the empty
	// path for a sandbox in the host's namespace.
	Find(name string) (netns string, err error)
}

// Links are the links of namespaces, and what is known of their neighbours.
type Links interface {
	// Links returns a namespace's links.
	Links(netns string) ([]rtnl.NetLink, error)
	// Peer returns the other end of a veth pair, or the parent of a sub-link.
	Peer(netns string, l rtnl.NetLink) (End, bool)
	// SubLinks returns the macvlan and ipvlan links of a parent link.
	SubLinks(netns string, l rtnl.NetLink) []End
	// Neighbours returns a namespace's neighbours and the forwarding tables of its
	// bridges.
	Neighbours(netns string) (neighbours, forwarding []rtnl.NeighbourEntry, err error)
}

// Routes are the routing decisions of namespaces.
type Routes interface {
	// Route returns the route of a packet. Returns *rtnl.ErrNoRoute if the kernel
	// would not forward or deliver it.
	Route(netns string, q rtnl.RouteQuery) (rtnl.RouteFound, error)
	// Selectors returns the fields that policy routing rules compare.
	Selectors(netns string) (rtnl.RouteSelectors, error)
	// Policies returns the selectors of the IPsec policies that encrypt or drop packets.
	Policies(netns string) ([]plan.IPsecPolicy, error)
}

// Settings are the sysctls of namespaces.
type Settings interface {
	// Setting returns a sysctl by its dotted name; "" if the kernel lacks it.
	Setting(netns, name string) string
}

// Filters are the rules and the programs at links that may drop or change packets.
type Filters interface {
	// Rules returns a namespace's rules, and what could not be read of them.
	Rules(netns string) (rules.Ruleset, []string, error)
	// Foreign returns the programs and filters of other programs at links.
	Foreign(netns string) ([]inspect.Foreign, error)
}

// Ports are the ports at which something accepts packets.
type Ports interface {
	// Listeners returns a namespace's sockets that accept connections or datagrams.
	Listeners(netns string) ([]sockdiag.Listener, error)
	// MinTTL returns the smallest TTL, or hop limit, of packets that the socket accepts
	// (IP_MINTTL, IPV6_MINHOPCOUNT); 0 if it accepts any.
	MinTTL(l sockdiag.Listener, v4 bool) int
	// SocketFilters returns the programs at the socket's cgroup and its parents that may drop
	// the socket's packets (cgroup_skb).
	SocketFilters(l sockdiag.Listener) ([]string, error)
	// ProxyTarget returns the target of a docker-proxy's socket; false if the
	// process is not one.
	ProxyTarget(l sockdiag.Listener) (netip.AddrPort, bool)
	// Published returns the ports that the daemon has published on the host.
	Published() []Published
}

// Services are the host's virtual services.
type Services interface {
	// Services returns the virtual services that are in the kernel. Failed returns
	// those of the daemon that could not be installed.
	Services() ([]Service, error)
	Failed() []Known
}

// Programs are the programs of the eBPF data path on the host.
type Programs interface {
	// EBPFState returns the programs and map entries of the eBPF data path.
	EBPFState() (datapath.State, error)
}

// End is a link in a namespace.
type End struct {
	Netns string
	rtnl.NetLink
}

// Has reports whether the link has the address.
func (e End) Has(a netip.Addr) bool { return hasAddress(e.NetLink, a) }

func hasAddress(l rtnl.NetLink, a netip.Addr) bool {
	for _, p := range l.Addresses {
		if p.Addr() == a {
			return true
		}
	}
	return false
}

// Published is a publish with the driver and addresses of its endpoint.
type Published struct {
	model.Publish
	Driver    model.Driver
	Addresses []netip.Addr
	// Away is as in plan.Attachment.
	Away bool
}

// target returns the address that the proxy dials for a host port. It prefers the
// endpoint's address of the host address's family (see publish.Listener).
func (p Published) target(port uint16) (netip.AddrPort, bool) {
	e := model.Endpoint{Addresses: p.Addresses}
	v4 := !p.HostAddr.Is6()
	a, ok := e.Address(v4)
	if !ok {
		a, ok = e.Address(!v4)
	}
	return netip.AddrPortFrom(a, p.Ports.First+(port-p.HostPorts.First)), ok
}

// covers reports whether the publish is for the address and port.
func (p Published) covers(proto model.Proto, at netip.AddrPort) bool {
	return p.Proto == proto && p.HostPorts.Overlaps(model.Port(at.Port())) && p.Accepts(at.Addr())
}
