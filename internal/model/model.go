// Package model describes what the user wants as plain values: networks, endpoints,
// published ports and virtual services. It validates and compares them. It has no
// knowledge of kernels, plans or files, and imports no other package of Fairlead
// except as leaf helpers.
package model

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Proto is a transport protocol that can be published.
type Proto string

// The transport protocols.
const (
	TCP Proto = "tcp"
	UDP Proto = "udp"
)

// PortRange is an inclusive range of transport ports. A single port has First ==
// Last.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Port returns the range that contains only port p.
func Port(p uint16) PortRange { return PortRange{First: p, Last: p} }

// Len returns the number of ports in the range.
func (r PortRange) Len() int { return int(r.Last) - int(r.First) + 1 }

// Overlaps reports whether r and o have a port in common.
func (r PortRange) Overlaps(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }

// String writes the range as Docker and nft do: "80" or "8000-8100".
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParsePortRange parses "80" or "8000-8100".
func ParsePortRange(s string) (PortRange, error) {
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	lo, err1 := strconv.ParseUint(first, 10, 16)
	hi, err2 := strconv.ParseUint(last, 10, 16)
	if err := errors.Join(err1, err2); err != nil || lo == 0 || hi < lo {
		return PortRange{}, fmt.Errorf("parse port %q: want a port from 1 to 65535, or FIRST-LAST with FIRST no greater than LAST",
			s)
	}
	return PortRange{First: uint16(lo), Last: uint16(hi)}, nil
}

// Via names a publish mode.
type Via string

// The publish modes. ViaAuto leaves the choice to the engine.
const (
	ViaProxy  Via = "proxy"
	ViaNAT    Via = "nat"
	ViaEBPF   Via = "ebpf"
	ViaSocket Via = "socket"
	ViaAuto   Via = "auto"
)

// Unpublished is the policy for binds to ports that no publish of the workload
// lists, if the workload uses the host's sockets (via socket).
type Unpublished string

// The policies for unpublished binds. The empty one is UnpublishedLoopback.
const (
	// UnpublishedLoopback moves the bind to the loopback address.
	UnpublishedLoopback Unpublished = "loopback"
	// UnpublishedDeny refuses the bind with EACCES.
	UnpublishedDeny Unpublished = "deny"
	// UnpublishedAllow does not change the bind.
	UnpublishedAllow Unpublished = "allow"
)

// Filter is the bridge filter setting: whether packets that cross a bridge pass the
// host's IP rules of iptables and nftables (br_netfilter).
type Filter string

// The bridge filter settings. FilterKeep does not change the host's setting.
const (
	FilterKeep Filter = ""
	FilterOn   Filter = "on"
	FilterOff  Filter = "off"
)

// Outbound says what translates the connections that the sandboxes of a network open to
// hosts outside.
type Outbound string

// OutboundNFT is netfilter: conntrack and masquerade. With OutboundEBPF the eBPF programs
// translate them, past the bridge and netfilter. With OutboundAuto the daemon chooses: ebpf
// while no rule of the host would decide about them. Without a daemon, it means OutboundNFT.
const (
	OutboundNFT  Outbound = ""
	OutboundEBPF Outbound = "ebpf"
	OutboundAuto Outbound = "auto"
)

// Subnet is one address range of a network.
type Subnet struct {
	// Prefix is the range, e.g. 172.30.0.0/24.
	Prefix netip.Prefix `json:"prefix"`
	// Gateway is the default gateway of the sandboxes. The zero value means
	// Address.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Address is the host's address in the range (docker's --bip). The zero value
	// means the first usable address of Range.
	Address netip.Addr `json:"address,omitzero"`
	// Range is the part of the subnet from which addresses are leased (docker's
	// --ip-range), for subnets that others use too. The zero value means the whole
	// subnet.
	Range netip.Prefix `json:"range,omitzero"`
}

// Pool returns the range from which addresses are leased.
func (s Subnet) Pool() netip.Prefix {
	if s.Range.IsValid() {
		return s.Range.Masked()
	}
	return s.Prefix.Masked()
}

// HostAddress returns the host's address in the subnet.
func (s Subnet) HostAddress() netip.Addr {
	if s.Address.IsValid() {
		return s.Address
	}
	if first := s.Pool().Addr(); s.Usable(first) {
		return first
	}
	return s.Pool().Addr().Next()
}

// Usable reports whether a host can have the address in the subnet. The first
// address and the last one of an IPv4 subnet are not usable.
func (s Subnet) Usable(a netip.Addr) bool {
	return a != s.Prefix.Masked().Addr() && (a.Is6() || s.Prefix.Contains(a.Next()))
}

// GatewayAddress returns the sandboxes' default gateway.
func (s Subnet) GatewayAddress() netip.Addr {
	if s.Gateway.IsValid() {
		return s.Gateway
	}
	return s.HostAddress()
}

// Pools returns the ranges of a subnet of the network from which addresses are leased, in
// the order in which they are used.
func (n Network) Pools(s Subnet) []netip.Prefix {
	pools := []netip.Prefix{s.Pool()}
	for _, r := range n.FurtherRanges {
		if s.holds(r) {
			pools = append(pools, r)
		}
	}
	return pools
}

// Network is a set of sandboxes that one driver connects to each other.
type Network struct {
	Name   string `json:"name"`
	Driver Driver `json:"driver"`
	// Origin names who created the network. Only the same origin may change or remove
	// it.
	Origin Origin `json:"origin,omitempty"`
	// Subnets holds at most one range per address family.
	Subnets []Subnet `json:"subnets,omitempty"`
	// FurtherRanges are parts of the subnets from which this host leases addresses when
	// the subnets' own ranges are full.
	FurtherRanges []netip.Prefix `json:"furtherRanges,omitempty"`
	// Remote are the parts of the subnets that are on other hosts, each with the address
	// of its host as the next hop. For networks with driver routed.
	Remote []Route `json:"remote,omitempty"`
	// Drained is true if this host is a drained node of the network's cluster: new attachments get no addresses.
	Drained bool `json:"drained,omitempty"`
	// MTU in bytes of every link of the network; 0 leaves it to the driver.
	MTU int `json:"mtu,omitempty"`
	// Parent is the host's link under macvlan and ipvlan links, or the device that
	// driver device moves into a sandbox. It is the name of a link or a PCI
	// address, e.g. 0000:3b:02.1.
	Parent string `json:"parent,omitempty"`
	// ParentAddresses are the host's addresses on the parent. The driver fills them
	// in.
	ParentAddresses []netip.Addr `json:"-"`
	// Mode is the mode of a macvlan or ipvlan network. Empty means bridge (macvlan)
	// or l2 (ipvlan).
	Mode Mode `json:"mode,omitempty"`
	// VLAN is the VLAN ID (802.1Q) on the parent; 0 means none.
	VLAN uint16 `json:"vlan,omitempty"`
	// PKey is the partition key of the child of an InfiniBand parent that driver
	// device makes for a sandbox; 0 means the device itself.
	PKey uint16 `json:"pkey,omitempty"`
	// Overlay holds the additional settings of driver vxlan.
	Overlay Overlay `json:"overlay,omitzero"`
	// Hairpin lets bridge ports send frames back to where they came from, even if
	// the driver does not need it.
	Hairpin bool `json:"hairpin,omitempty"`
	// Filter is the br_netfilter setting of the bridge.
	Filter Filter `json:"filter,omitempty"`
	// Outbound says what translates the connections that the sandboxes open to hosts
	// outside.
	Outbound Outbound `json:"outbound,omitempty"`
	// Flowtable forwards established connections with other hosts through an nftables
	// flowtable, past the host's FORWARD rules.
	Flowtable bool `json:"flowtable,omitempty"`
	// Internal isolates the network from everything but its host.
	Internal bool `json:"internal,omitempty"`
	// AllowOverlap allows subnets that overlap those of the host's links and routes.
	AllowOverlap bool `json:"allowOverlap,omitempty"`
}

// Lease returns an error if the host leases no new addresses of the network.
func (n Network) Lease() error {
	if !n.Drained {
		return nil
	}
	return fmt.Errorf("this host is drained, and leases no new addresses of network %s: use another host, or end the "+
		"drain with `fairlead cluster drain --undo` and the name of this host", n.Name)
}

// LinkMTU returns the MTU in bytes of the network's links: 1500 if neither the user
// nor the driver set one.
func (n Network) LinkMTU() int {
	if n.MTU == 0 {
		return 1500
	}
	return n.MTU
}

// Endpoint is a sandbox's connection to a network.
type Endpoint struct {
	// Name is unique in the desired state.
	Name    string `json:"name"`
	Network string `json:"network"`
	// Sandbox is the path of the network namespace, e.g. /run/netns/web or
	// /proc/4711/ns/net. It is empty for driver host, which uses the host's
	// namespace.
	Sandbox string `json:"sandbox,omitempty"`
	// Interface is the link's name in the sandbox. Empty means eth0.
	Interface string `json:"interface,omitempty"`
	// HostInterface is the name of the sandbox's end of the link on the host, for
	// an external endpoint: a container engine moves the end into the sandbox and
	// sets its name, addresses and routes there. Empty means that Fairlead does
	// that.
	HostInterface string `json:"hostInterface,omitempty"`
	// Addresses holds at most one address per family, each in a subnet of the
	// network.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// MAC is the hardware address. Empty lets the driver choose it.
	MAC string `json:"mac,omitempty"`
	// Prefixes are addresses with prefix lengths, as a DHCP server or the LAN's
	// administrator assigns them. They are for networks without subnets.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// Gateways replace the network's gateways in the sandbox, at most one per
	// family.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	// NoDefault sets no default route in the sandbox.
	NoDefault bool `json:"noDefault,omitempty"`
	// Routes are additional routes of the sandbox through this interface.
	Routes []Route `json:"routes,omitempty"`
	// Limit limits the traffic in each direction.
	Limit Limit `json:"limit,omitzero"`
	// Cgroup is the path of the workload's cgroup v2 directory, e.g.
	// /sys/fs/cgroup/system.slice/nginx.service. Only workloads in the host's
	// namespace have one; publishes via socket need it.
	Cgroup string `json:"cgroup,omitempty"`
	// Unpublished is the policy for binds to ports that are not published, for
	// endpoints with a cgroup; empty means loopback.
	Unpublished Unpublished `json:"unpublished,omitempty"`
}

// InterfaceName returns the link's name in the sandbox.
func (e Endpoint) InterfaceName() string {
	if e.Interface == "" {
		return "eth0"
	}
	return e.Interface
}

// Address returns the endpoint's address of the family (IPv4 if v4). It returns
// false if there is none.
func (e Endpoint) Address(v4 bool) (netip.Addr, bool) { return ofFamily(e.AllAddresses(), v4) }

// Gateway returns the endpoint's gateway of the family (IPv4 if v4). It returns
// false if there is none.
func (e Endpoint) Gateway(v4 bool) (netip.Addr, bool) { return ofFamily(e.Gateways, v4) }

// AllAddresses returns all addresses, those in a subnet and those of Prefixes.
func (e Endpoint) AllAddresses() []netip.Addr {
	all := slices.Clone(e.Addresses)
	for _, p := range e.Prefixes {
		all = append(all, p.Addr())
	}
	return all
}

func (e Endpoint) clone() Endpoint {
	e.Addresses, e.Prefixes = slices.Clone(e.Addresses), slices.Clone(e.Prefixes)
	e.Gateways, e.Routes = slices.Clone(e.Gateways), slices.Clone(e.Routes)
	return e
}

func ofFamily(addrs []netip.Addr, v4 bool) (netip.Addr, bool) {
	i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == v4 })
	if i < 0 {
		return netip.Addr{}, false
	}
	return addrs[i], true
}

// Publish makes ports of an endpoint reachable at a host address and port range.
type Publish struct {
	Endpoint string `json:"endpoint"`
	Via      Via    `json:"via"`
	Proto    Proto  `json:"proto"`
	// HostAddr is the host address. The zero value means all addresses of both
	// families, 0.0.0.0 all IPv4 and :: all IPv6 addresses.
	HostAddr netip.Addr `json:"hostAddr,omitzero"`
	// HostPorts and Ports have equal length and map one to one.
	HostPorts PortRange `json:"hostPorts"`
	Ports     PortRange `json:"ports"`
	// ProxyProtocol is the version (1 or 2) of the PROXY header that the proxy
	// sends before a TCP stream; 0 means none.
	ProxyProtocol int `json:"proxyProtocol,omitempty"`
	// Promises are the promises that the publish mode must keep, with the names
	// that `fairlead paths` lists for publishes. `via: auto` chooses a mode that
	// keeps them; any other mode that does not keep them is refused.
	Promises []string `json:"promises,omitempty"`
	// Reset ends the TCP connections with a reset when the publish is removed (via
	// ebpf). If it is false, both ends notice only by timeouts.
	Reset bool `json:"reset,omitempty"`
	// Origin names who created the publish. Only the same origin may change or remove
	// it.
	Origin Origin `json:"origin,omitempty"`
}

// AcceptsFamily reports whether the publish accepts packets to addresses of the
// family (IPv4 if v4).
func (p Publish) AcceptsFamily(v4 bool) bool { return !p.HostAddr.IsValid() || p.HostAddr.Is4() == v4 }

// AnyAddr reports whether the publish accepts packets to all addresses of a family.
func (p Publish) AnyAddr() bool { return !p.HostAddr.IsValid() || p.HostAddr.IsUnspecified() }

// Accepts reports whether the publish accepts packets to the host address; if a is
// unspecified, to any address of a's family.
func (p Publish) Accepts(a netip.Addr) bool {
	return p.AcceptsFamily(a.Is4()) && (p.AnyAddr() || a.IsUnspecified() || p.HostAddr == a)
}

// String writes the publish as "8080/tcp -> web:80 via nat".
func (p Publish) String() string {
	host := p.HostPorts.String()
	if p.HostAddr.Is6() {
		host = "[" + p.HostAddr.String() + "]:" + host
	} else if p.HostAddr.IsValid() {
		host = p.HostAddr.String() + ":" + host
	}
	return fmt.Sprintf("%s/%s -> %s:%s via %s", host, p.Proto, p.Endpoint, p.Ports, p.Via)
}

// Collides reports whether p and o have a host address, port and protocol in
// common.
func (p Publish) Collides(o Publish) bool {
	if p.Proto != o.Proto || !p.HostPorts.Overlaps(o.HostPorts) {
		return false
	}
	for _, v4 := range []bool{true, false} {
		if p.AcceptsFamily(v4) && o.AcceptsFamily(v4) && (p.AnyAddr() || o.AnyAddr() || p.HostAddr == o.HostAddr) {
			return true
		}
	}
	return false
}

// State is the complete desired state of one host.
type State struct {
	Networks  []Network  `json:"networks,omitempty"`
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	Publishes []Publish  `json:"publishes,omitempty"`
	// Services are virtual services with the real servers that currently get
	// traffic.
	Services []VirtualService `json:"services,omitempty"`
}

// Network returns the network with this name.
func (s State) Network(name string) (Network, bool) {
	return find(s.Networks, func(n Network) bool { return n.Name == name })
}

// Endpoint returns the endpoint with this name.
func (s State) Endpoint(name string) (Endpoint, bool) {
	return find(s.Endpoints, func(e Endpoint) bool { return e.Name == name })
}

// find returns the first value that is wanted.
func find[T any](all []T, wanted func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(all, wanted); i >= 0 {
		return all[i], true
	}
	return found, false
}

// Clone returns a deep copy.
func (s State) Clone() State {
	s.Networks, s.Endpoints, s.Publishes = slices.Clone(s.Networks), slices.Clone(s.Endpoints),
		slices.Clone(s.Publishes)
	for i := range s.Networks {
		s.Networks[i].Subnets = slices.Clone(s.Networks[i].Subnets)
		s.Networks[i].FurtherRanges = slices.Clone(s.Networks[i].FurtherRanges)
		s.Networks[i].Remote = slices.Clone(s.Networks[i].Remote)
		s.Networks[i].Overlay = s.Networks[i].Overlay.clone()
		s.Networks[i].ParentAddresses = slices.Clone(s.Networks[i].ParentAddresses)
	}
	for i := range s.Endpoints {
		s.Endpoints[i] = s.Endpoints[i].clone()
	}
	for i := range s.Publishes {
		s.Publishes[i].Promises = slices.Clone(s.Publishes[i].Promises)
	}
	s.Services = slices.Clone(s.Services)
	for i := range s.Services {
		s.Services[i] = s.Services[i].Clone()
	}
	return s
}
