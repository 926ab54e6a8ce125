package rig

import (
	"net/netip"

	"fairlead/internal/lab/result"
	"fairlead/internal/lab/topology"
)

// Addresses are the addresses of a rig in one family.
type Addresses struct {
	// Client and Server are the hosts' addresses on the wire; clients dial published
	// ports at Server. ClientSecond and ServerSecond are those on the second wire.
	Client, Server, ClientSecond, ServerSecond netip.Addr
	// Subnet is the network of the server host, with the addresses of its host and of
	// two sandboxes: the workload and its neighbour.
	Subnet                      netip.Prefix
	Gateway, Workload, Neighbor netip.Addr
	// On an overlay each host assigns addresses from its range, and the client is in a
	// sandbox too, at the address Visitor. ClientGateway is the client host's address.
	ServerRange, ClientRange netip.Prefix
	ClientGateway, Visitor   netip.Addr
	// Third is a host on the wire that does not exist, and ThirdBlock the block that it has
	// in a cluster's network. ServerBlock and ClientBlock are those of the other hosts, in
	// their ranges. They are of IPv4 only.
	Third                                netip.Addr
	ServerBlock, ClientBlock, ThirdBlock netip.Prefix
	// WireRange is the range of the wire's subnet for sandboxes on the wire itself, and
	// WireWorkload the workload's address in it.
	WireRange    netip.Prefix
	WireWorkload netip.Addr
	// WireNeighbor is the neighbour's address in that range.
	WireNeighbor netip.Addr
	// OtherSubnet is the subnet of another network of the server host, OtherGateway the
	// host's address in it, and Other that of its sandbox.
	OtherSubnet         netip.Prefix
	OtherGateway, Other netip.Addr
	// Started and WireStarted are the addresses of a container whose start is measured:
	// on the network, and on the wire.
	Started, WireStarted netip.Addr
	// Virtual is the address of virtual services; the client's route to it is via the
	// server host.
	Virtual netip.Addr
	// Unspecified means all addresses of a host.
	Unspecified netip.Addr
	// Reals are the addresses of the real servers that can fail, by name.
	Reals map[string]netip.Addr
}

// IPv6 reports whether the addresses are of IPv6.
func (a *Addresses) IPv6() bool { return a.Server.Is6() }

// host returns the address alone as a prefix.
func (a *Addresses) host(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// other returns an address that no host has: of the nth real server of the ith other
// service.
func (a *Addresses) other(i int, n byte) netip.Addr {
	if a.IPv6() {
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0x40, 12: byte(i >> 8), byte(i), 0, n})
	}
	return netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), n})
}

// AddressesOf returns the addresses of a family.
func AddressesOf(f result.Family) *Addresses {
	if f.Is6() {
		return &addresses6
	}
	return &addresses4
}

var (
	addr   = netip.MustParseAddr
	prefix = netip.MustParsePrefix
)

var addresses4 = Addresses{
	Client: topology.ClientAddr4, Server: topology.ServerAddr4,
	ClientSecond: topology.ClientSecond4, ServerSecond: topology.ServerSecond4,
	Subnet: prefix("172.30.0.0/24"), Gateway: addr("172.30.0.1"), Workload: addr("172.30.0.2"),
	Neighbor:    addr("172.30.0.3"),
	ServerRange: prefix("172.30.0.0/25"), ClientRange: prefix("172.30.0.128/25"),
	ClientGateway: addr("172.30.0.128"), Visitor: addr("172.30.0.130"),
	Third: addr("198.51.100.3"), ServerBlock: prefix("172.30.0.0/26"), ClientBlock: prefix("172.30.0.128/26"),
	ThirdBlock: prefix("172.30.0.192/26"),
	WireRange:  prefix("198.51.100.16/28"), WireWorkload: addr("198.51.100.20"),
	WireNeighbor: addr("198.51.100.22"),
	OtherSubnet:  prefix("172.31.0.0/24"), OtherGateway: addr("172.31.0.1"), Other: addr("172.31.0.2"),
	Started: addr("172.30.0.9"), WireStarted: addr("198.51.100.21"),
	Virtual: addr("192.0.2.80"), Unspecified: netip.IPv4Unspecified(),
	Reals: map[string]netip.Addr{Victim: addr("172.30.0.11"), "b": addr("172.30.0.12"), "c": addr("172.30.0.13")},
}

// addresses6 are from the range for documentation (RFC 3849), as those of the wires.
var addresses6 = Addresses{
	Client: topology.ClientAddr6, Server: topology.ServerAddr6,
	ClientSecond: topology.ClientSecond6, ServerSecond: topology.ServerSecond6,
	Subnet: prefix("2001:db8:30::/64"), Gateway: addr("2001:db8:30::1"), Workload: addr("2001:db8:30::2"),
	Neighbor:    addr("2001:db8:30::3"),
	ServerRange: prefix("2001:db8:30::/65"), ClientRange: prefix("2001:db8:30:0:8000::/65"),
	ClientGateway: addr("2001:db8:30:0:8000::1"), Visitor: addr("2001:db8:30:0:8000::2"),
	WireRange: prefix("2001:db8:1::10/124"), WireWorkload: addr("2001:db8:1::14"),
	WireNeighbor: addr("2001:db8:1::16"),
	OtherSubnet:  prefix("2001:db8:31::/64"), OtherGateway: addr("2001:db8:31::1"), Other: addr("2001:db8:31::2"),
	Started: addr("2001:db8:30::9"), WireStarted: addr("2001:db8:1::15"),
	Virtual: addr("2001:db8:80::80"), Unspecified: netip.IPv6Unspecified(),
	Reals: map[string]netip.Addr{Victim: addr("2001:db8:30::11"), "b": addr("2001:db8:30::12"),
		"c": addr("2001:db8:30::13")},
}
