// Package threat is the table of what an attacker can and cannot do on each path,
// as data. test/attack proves every cell with packets. The package knows of a path only
// the traits of its driver and the carrier of its publish mode, and the choice of a path
// does not use it.
package threat

import (
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// Attacker is the place of an attacker in the network. An attacker in a container
// has CAP_NET_RAW, which container engines give by default.
type Attacker string

// The attackers.
const (
	SameNetwork     Attacker = "a container of the same network"
	OtherNetwork    Attacker = "a container of another network"
	InternalNetwork Attacker = "a container of an internal network"
	LANHost         Attacker = "a host of the LAN"
	OtherUplink     Attacker = "a host behind a second uplink"
)

// Attack is what an attacker tries to achieve.
type Attack string

// The attacks on the endpoints of a driver, in the table's order.
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
	Loop          Attack = "start an endless exchange between two published UDP ports with one forged datagram"
)

// Cell is one cell of the table: an attack on one path by one attacker.
type Cell struct {
	Attack   Attack       `json:"attack"`
	Attacker Attacker     `json:"attacker"`
	Driver   model.Driver `json:"driver"`
	// Via is the publish mode. It is empty for attacks on the endpoint itself.
	Via model.Via `json:"via,omitempty"`
	// Setting is the setting of the network.
	Setting Setting `json:"setting,omitempty"`
	// Can says that the attack succeeds, and How explains why.
	Can bool   `json:"can"`
	How string `json:"how,omitempty"`
	// IPv6Only says that the attack succeeds only with IPv6.
	IPv6Only bool `json:"ipv6Only,omitempty"`
}

// scope is an attack and the attackers that are tested with it.
type scope struct {
	attack    Attack
	attackers []Attacker
}

var (
	containers   = []Attacker{SameNetwork, OtherNetwork, InternalNetwork}
	outside      = []Attacker{LANHost, OtherUplink}
	allAttackers = slices.Concat(containers, outside)
)

// onLinks are the attacks on endpoints. published are the attacks on published
// ports.
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
		{Hijack, allAttackers},
		{Block, allAttackers},
		{BlockNeighbor, []Attacker{OtherNetwork, InternalNetwork, LANHost, OtherUplink}},
		{BlockLoopback, allAttackers},
		{AnySource, containers},
		{Inject, []Attacker{SameNetwork, OtherNetwork, InternalNetwork, OtherUplink}},
		{HostSource, outside},
		{ForgeError, []Attacker{SameNetwork, OtherNetwork, InternalNetwork, OtherUplink}},
		{Flood, allAttackers},
		{Loop, allAttackers},
	}
)

// Drivers lists the drivers in Table, first those with a bridge. It leaves out drivers for which the host forwards no
// packets, and those that the kernel of a test machine may lack.
func Drivers() []model.Driver {
	tested := func(bridge bool) []model.Driver {
		return model.Drivers(func(t model.Traits) bool {
			return t.Bridge == bridge && !t.NoLink && !t.MovesDevice && !t.Optional
		})
	}
	return append(tested(true), tested(false)...)
}

// Vias returns the publish modes that publish ports of endpoints with driver d, in the order of Table.
func Vias(d model.Driver) (vias []model.Via) {
	for _, m := range paths.Modes() {
		if m.Promises(d) != nil {
			vias = append(vias, m.Name())
		}
	}
	return vias
}

// Table returns every cell: first the attacks on endpoints, then those on published
// ports and on exchanges that containers have begun, each in the order of attack, attacker
// and path.
func Table() []Cell {
	var table []Cell
	for _, s := range onLinks {
		for _, a := range s.attackers {
			for _, d := range Drivers() {
				table = append(table, cell(Cell{Attack: s.attack, Attacker: a, Driver: d}))
			}
		}
	}
	for _, s := range published {
		for _, a := range s.attackers {
			for _, d := range Drivers() {
				for _, v := range Vias(d) {
					table = append(table, cell(Cell{Attack: s.attack, Attacker: a, Driver: d, Via: v}))
				}
			}
		}
	}
	for _, s := range outbound {
		for _, a := range s.attackers {
			for _, d := range Drivers() {
				for _, with := range Settings(d) {
					table = append(table, cell(Cell{Attack: s.attack, Attacker: a, Driver: d, Setting: with}))
				}
			}
		}
	}
	return table
}

// cell returns the cell with the answer.
func cell(c Cell) Cell {
	for _, e := range exposures {
		if e.covers(c) {
			c.Can, c.How, c.IPv6Only = true, e.how, e.ipv6Only
		}
	}
	return c
}
