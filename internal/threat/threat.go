// Package threat says in data what an attacker can and cannot do on each path.
// test/attack proves every cell with packets. It does not know how a path
// works, and it takes no part in deciding one.
package threat

import (
	"slices"

	"fairlead/internal/model"
)

// Attacker is where an attacker is. A container is hostile with CAP_NET_RAW,
// which container engines give by default.
type Attacker string

// The attackers.
const (
	SameNetwork     Attacker = "a container of the same network"
	OtherNetwork    Attacker = "a container of another network"
	InternalNetwork Attacker = "a container of an internal network"
	LANHost         Attacker = "a host of the LAN"
	OtherUplink     Attacker = "a host behind a second uplink"
)

// Attack is an effect that an attacker wants.
type Attack string

// The attacks on what a driver attaches, in the table's order.
const (
	AdvertiseHost      Attack = "change the host's IPv6 routes, addresses or MTU with a router advertisement"
	AdvertiseContainer Attack = "change another container's IPv6 routes, addresses or hop limit with a router advertisement"
	Redirect           Attack = "change another container's route with an ICMP redirect"
	TakeAddress        Attack = "receive what a container sends to its gateway or to another container, by forged ARP or neighbour advertisements"
	SpoofContainer     Attack = "reach a container with the source address of another container of its network"
	ServeDHCP          Attack = "answer a container's DHCP request"
	TagVLAN            Attack = "reach a container of another network with a VLAN tag (802.1Q, 802.1ad, priority)"
	SourceRoute        Attack = "reach a container of an internal network with a source route (LSRR, routing header 0)"
	Fragment           Attack = "reach a port that is not published with tiny or overlapping fragments"
	Unpublished        Attack = "reach a port that is not published, with any source address"
)

// The attacks on a published port.
const (
	Hijack        Attack = "read the answers to a client of the LAN"
	Block         Attack = "keep a client of the LAN out with forged requests"
	BlockNeighbor Attack = "break connections between two containers of the network"
	BlockLoopback Attack = "keep processes of the host out of 127.0.0.1"
	AnySource     Attack = "hold a conversation from an address that is not the attacker's"
	Inject        Attack = "send a datagram into the socket of a client of the LAN"
	HostSource    Attack = "be answered with the host's own address as the source"
	ForgeError    Attack = "break a client's conversation with a forged ICMP error"
	Flood         Attack = "end idle connections with a flood of SYNs"
)

// Cell is one answer of the table.
type Cell struct {
	Attack   Attack       `json:"attack"`
	Attacker Attacker     `json:"attacker"`
	Driver   model.Driver `json:"driver"`
	// Via is empty for what the driver attaches.
	Via model.Via `json:"via,omitempty"`
	// Can says that the attack has its effect, and How explains it.
	Can bool   `json:"can"`
	How string `json:"how,omitempty"`
	// IPv6Only says that it has no effect with IPv4.
	IPv6Only bool `json:"ipv6Only,omitempty"`
}

// scope says which attackers an attack is for.
type scope struct {
	attack    Attack
	attackers []Attacker
}

var (
	containers = []Attacker{SameNetwork, OtherNetwork, InternalNetwork}
	outside    = []Attacker{LANHost, OtherUplink}
	everybody  = slices.Concat(containers, outside)
)

// onLinks are the attacks on what a driver attaches, published those on a port.
var (
	onLinks = []scope{
		{AdvertiseHost, []Attacker{SameNetwork}},
		{AdvertiseContainer, []Attacker{SameNetwork}},
		{Redirect, []Attacker{SameNetwork}},
		{TakeAddress, []Attacker{SameNetwork}},
		{SpoofContainer, []Attacker{SameNetwork}},
		{ServeDHCP, []Attacker{SameNetwork}},
		{TagVLAN, []Attacker{SameNetwork}},
		{SourceRoute, []Attacker{SameNetwork, LANHost, OtherUplink}},
		{Fragment, []Attacker{OtherNetwork, InternalNetwork, LANHost, OtherUplink}},
		{Unpublished, []Attacker{OtherNetwork, InternalNetwork, LANHost, OtherUplink}},
	}
	published = []scope{
		{Hijack, everybody},
		{Block, everybody},
		{BlockNeighbor, []Attacker{OtherNetwork, InternalNetwork, LANHost, OtherUplink}},
		{BlockLoopback, everybody},
		{AnySource, containers},
		{Inject, []Attacker{SameNetwork, OtherNetwork, InternalNetwork, OtherUplink}},
		{HostSource, outside},
		{ForgeError, []Attacker{SameNetwork, OtherNetwork, InternalNetwork, OtherUplink}},
		{Flood, everybody},
	}
)

// Drivers lists the drivers of the table. The host takes no part in the packets
// of none, host and device. The kernel of a test machine may lack ipvlan.
func Drivers() []model.Driver {
	return []model.Driver{model.DriverBridge, model.DriverVXLAN, model.DriverRouted, model.DriverMacvlan}
}

// Vias lists the publish modes of the table for endpoints of a driver.
func Vias(d model.Driver) []model.Via {
	vias := []model.Via{model.ViaProxy, model.ViaNAT}
	if d != model.DriverMacvlan {
		vias = append(vias, model.ViaEBPF)
	}
	return vias
}

// Table returns every cell: first of what drivers attach, then of what is
// published, each in the order of attack, attacker and path.
func Table() []Cell {
	var table []Cell
	for _, s := range onLinks {
		for _, a := range s.attackers {
			for _, d := range Drivers() {
				table = append(table, cell(s.attack, a, d, ""))
			}
		}
	}
	for _, s := range published {
		for _, a := range s.attackers {
			for _, d := range Drivers() {
				for _, v := range Vias(d) {
					table = append(table, cell(s.attack, a, d, v))
				}
			}
		}
	}
	return table
}

func cell(k Attack, a Attacker, d model.Driver, v model.Via) Cell {
	c := Cell{Attack: k, Attacker: a, Driver: d, Via: v}
	for _, e := range exposures {
		if e.covers(c) {
			c.Can, c.How, c.IPv6Only = true, e.how, e.ipv6Only
		}
	}
	return c
}
