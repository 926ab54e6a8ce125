// Package model says what the user wants, as plain values: networks,
// endpoints and published ports. It validates and compares them. It knows
// nothing of kernels, plans or files, and imports nothing else of ours.
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

// PortRange is an inclusive range of transport ports; a single port has
// First == Last.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// Port returns the range that holds the single port p.
func Port(p uint16) PortRange { return PortRange{First: p, Last: p} }

// Len returns the number of ports in the range.
func (r PortRange) Len() int { return int(r.Last) - int(r.First) + 1 }

// Overlaps reports whether r and o share a port.
func (r PortRange) Overlaps(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }

// String writes the range as Docker and nft do: "80" or "8000-8100".
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParsePortRange reads "80" or "8000-8100".
func ParsePortRange(s string) (PortRange, error) {
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	lo, err1 := strconv.ParseUint(first, 10, 16)
	hi, err2 := strconv.ParseUint(last, 10, 16)
	if err := errors.Join(err1, err2); err != nil || lo == 0 || hi < lo {
		return PortRange{}, fmt.Errorf("parse port %q: want a port from 1 to 65535, or FIRST-LAST with FIRST no greater than LAST", s)
	}
	return PortRange{First: uint16(lo), Last: uint16(hi)}, nil
}

// Driver names a way to attach a sandbox.
type Driver string

// The drivers.
const (
	DriverNone    Driver = "none"
	DriverHost    Driver = "host"
	DriverBridge  Driver = "bridge"
	DriverRouted  Driver = "routed"
	DriverMacvlan Driver = "macvlan"
	DriverIPvlan  Driver = "ipvlan"
	DriverVXLAN   Driver = "vxlan"
	DriverDevice  Driver = "device"
)

// Via names a way to publish a port.
type Via string

// The ways to publish. ViaAuto leaves the choice to the engine.
const (
	ViaProxy  Via = "proxy"
	ViaNAT    Via = "nat"
	ViaEBPF   Via = "ebpf"
	ViaSocket Via = "socket"
	ViaAuto   Via = "auto"
)

// Unpublished says what becomes of a bind to a port that the workload's
// publishes do not list, where sockets are the host's own (via socket).
type Unpublished string

// The policies for unlisted binds. The empty one is UnpublishedLoopback.
const (
	// UnpublishedLoopback moves the bind to the loopback address.
	UnpublishedLoopback Unpublished = "loopback"
	// UnpublishedDeny refuses it with EACCES.
	UnpublishedDeny Unpublished = "deny"
	// UnpublishedAllow leaves it as it is.
	UnpublishedAllow Unpublished = "allow"
)

// Filter says whether packets that cross a bridge pass the host's iptables
// and nftables IP rules (br_netfilter).
type Filter string

// The bridge filter settings. FilterKeep leaves the host's setting as it is.
const (
	FilterKeep Filter = ""
	FilterOn   Filter = "on"
	FilterOff  Filter = "off"
)

// Subnet is one address range of a network.
type Subnet struct {
	// Prefix is the range, e.g. 172.30.0.0/24.
	Prefix netip.Prefix `json:"prefix"`
	// Gateway is the default gateway of the sandboxes; the zero value means
	// Address.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Address is the host's own address in the range (docker's --bip); the
	// zero value means the first usable address of Range.
	Address netip.Addr `json:"address,omitzero"`
	// Range is the part of the subnet that addresses are leased from (docker's
	// --ip-range), for subnets shared with others; the zero value means all.
	Range netip.Prefix `json:"range,omitzero"`
}

// Pool returns the range that addresses are leased from.
func (s Subnet) Pool() netip.Prefix {
	if s.Range.IsValid() {
		return s.Range.Masked()
	}
	return s.Prefix.Masked()
}

// HostAddress returns the host's own address in the subnet.
func (s Subnet) HostAddress() netip.Addr {
	if s.Address.IsValid() {
		return s.Address
	}
	if first := s.Pool().Addr(); s.Usable(first) {
		return first
	}
	return s.Pool().Addr().Next()
}

// Usable reports whether a host can have the address of the subnet: not the
// first, which names the subnet, nor the last of an IPv4 one.
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

// Network is a set of sandboxes that reach each other by one driver.
type Network struct {
	Name   string `json:"name"`
	Driver Driver `json:"driver"`
	// Origin says who made the network; only they change or remove it.
	Origin Origin `json:"origin,omitempty"`
	// Subnets holds at most one range of each address family.
	Subnets []Subnet `json:"subnets,omitempty"`
	// MTU in bytes of every link of the network; 0 leaves it to the driver.
	MTU int `json:"mtu,omitempty"`
	// Parent is the host's link that macvlan and ipvlan branch from, and the
	// device that driver device hands over: the name of a link, or the PCI
	// address of one, e.g. 0000:3b:02.1.
	Parent string `json:"parent,omitempty"`
	// ParentAddresses are the host's on the parent; the driver fills them in.
	ParentAddresses []netip.Addr `json:"-"`
	// Mode is how a macvlan or ipvlan network switches; empty means bridge and
	// l2.
	Mode Mode `json:"mode,omitempty"`
	// VLAN is the VLAN ID (802.1Q) on the parent, 0 for none.
	VLAN uint16 `json:"vlan,omitempty"`
	// PKey makes driver device hand over a child of an InfiniBand parent with
	// that partition key, 0 for none.
	PKey uint16 `json:"pkey,omitempty"`
	// Overlay is what driver vxlan needs besides.
	Overlay Overlay `json:"overlay,omitzero"`
	// Hairpin lets a bridge port send a frame back where it came from, also
	// where the driver does not need it.
	Hairpin bool `json:"hairpin,omitempty"`
	// Filter is the br_netfilter setting wanted for a bridge.
	Filter Filter `json:"filter,omitempty"`
	// Internal cuts the network off from everything but its own host.
	Internal bool `json:"internal,omitempty"`
	// AllowOverlap allows subnets that overlap those of the host's links and routes.
	AllowOverlap bool `json:"allowOverlap,omitempty"`
}

// LinkMTU returns the MTU in bytes that the network's links get: 1500, unless
// the user or the driver says otherwise.
func (n Network) LinkMTU() int {
	if n.MTU == 0 {
		return 1500
	}
	return n.MTU
}

// Endpoint joins one sandbox to one network.
type Endpoint struct {
	// Name is unique in the desired state.
	Name    string `json:"name"`
	Network string `json:"network"`
	// Sandbox is the path of the network namespace, e.g. /run/netns/web or
	// /proc/4711/ns/net; empty for the host driver, which is the host's own.
	Sandbox string `json:"sandbox,omitempty"`
	// Interface is the link's name in the sandbox; empty means eth0.
	Interface string `json:"interface,omitempty"`
	// HostInterface is the name under which the sandbox's end of the link waits on the
	// host for somebody else, a container engine, who takes it into the sandbox
	// and gives it its name there, addresses and routes. Empty means that we do.
	HostInterface string `json:"hostInterface,omitempty"`
	// Addresses holds at most one address of each family, each in a subnet
	// of the network.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// MAC is the hardware address; empty leaves it to the driver.
	MAC string `json:"mac,omitempty"`
	// Prefixes are addresses with prefix lengths of their own, as a DHCP server
	// or the LAN's administrator gives them, of a network without subnets.
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// Gateways replace the network's in the sandbox, at most one of a family.
	Gateways []netip.Addr `json:"gateways,omitempty"`
	// NoDefault leaves the sandbox's default route as it is.
	NoDefault bool `json:"noDefault,omitempty"`
	// Routes are further routes of the sandbox by this interface.
	Routes []Route `json:"routes,omitempty"`
	// Limit bounds the traffic each way.
	Limit Limit `json:"limit,omitzero"`
	// Cgroup is the path of the workload's cgroup v2 directory, e.g.
	// /sys/fs/cgroup/system.slice/nginx.service. Only workloads in the host's
	// namespace have one, and need it to be published via socket.
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

// Address returns the endpoint's address of the family (IPv4 when v4).
func (e Endpoint) Address(v4 bool) (netip.Addr, bool) { return ofFamily(e.AllAddresses(), v4) }

// Gateway returns the endpoint's own gateway of the family (IPv4 when v4).
func (e Endpoint) Gateway(v4 bool) (netip.Addr, bool) { return ofFamily(e.Gateways, v4) }

// AllAddresses returns the addresses, with a subnet and without.
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

// Publish leads a host address and port range to an endpoint's ports.
type Publish struct {
	Endpoint string `json:"endpoint"`
	Via      Via    `json:"via"`
	Proto    Proto  `json:"proto"`
	// HostAddr is the host address that answers: the zero value means every
	// address of both families, 0.0.0.0 every IPv4 and :: every IPv6 one.
	HostAddr netip.Addr `json:"hostAddr,omitzero"`
	// HostPorts and Ports are of equal length; they map one to one.
	HostPorts PortRange `json:"hostPorts"`
	Ports     PortRange `json:"ports"`
	// ProxyProtocol is the version (1 or 2) of the PROXY header that the
	// proxy sends ahead of a TCP stream; 0 means none.
	ProxyProtocol int `json:"proxyProtocol,omitempty"`
	// Promises are what the way must promise, by the names that `fairlead
	// paths` lists for publishes; `via: auto` chooses by them, and another way
	// that does not keep them is refused.
	Promises []string `json:"promises,omitempty"`
	// Reset ends the TCP connections of the publish with a reset when it goes,
	// instead of leaving both ends to find out (via ebpf).
	Reset bool `json:"reset,omitempty"`
	// Origin says who published it; only they change it or take it back.
	Origin Origin `json:"origin,omitempty"`
}

// AcceptsFamily reports whether the publish answers on addresses of the family
// (IPv4 when v4).
func (p Publish) AcceptsFamily(v4 bool) bool { return !p.HostAddr.IsValid() || p.HostAddr.Is4() == v4 }

// AnyAddr reports whether the publish answers on every address of a family.
func (p Publish) AnyAddr() bool { return !p.HostAddr.IsValid() || p.HostAddr.IsUnspecified() }

// Accepts reports whether the publish answers on the host address, or on
// part of it where a is unspecified.
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

// Collides reports whether p and o would answer on a common host address,
// port and protocol.
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

// State is everything that a user wants of one host.
type State struct {
	Networks  []Network  `json:"networks,omitempty"`
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	Publishes []Publish  `json:"publishes,omitempty"`
	// Services are virtual services with the real servers that shall get
	// traffic now.
	Services []VirtualService `json:"services,omitempty"`
}

// Network returns the network of that name.
func (s State) Network(name string) (Network, bool) {
	i := slices.IndexFunc(s.Networks, func(n Network) bool { return n.Name == name })
	if i < 0 {
		return Network{}, false
	}
	return s.Networks[i], true
}

// Endpoint returns the endpoint of that name.
func (s State) Endpoint(name string) (Endpoint, bool) {
	i := slices.IndexFunc(s.Endpoints, func(e Endpoint) bool { return e.Name == name })
	if i < 0 {
		return Endpoint{}, false
	}
	return s.Endpoints[i], true
}

// Clone returns a copy that shares nothing with s.
func (s State) Clone() State {
	s.Networks, s.Endpoints, s.Publishes = slices.Clone(s.Networks), slices.Clone(s.Endpoints), slices.Clone(s.Publishes)
	for i := range s.Networks {
		s.Networks[i].Subnets = slices.Clone(s.Networks[i].Subnets)
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
