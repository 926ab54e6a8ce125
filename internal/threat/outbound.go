package threat

import (
	"slices"

	"fairlead/internal/model"
)

// Setting is a setting of a network that changes the path of its packets.
type Setting string

// The settings. Default is none of them.
const (
	Default      Setting = ""
	OutboundEBPF Setting = "outbound ebpf"
	Flowtable    Setting = "flowtable"
)

// The attacks on what a container and a host of the LAN exchange after the container has
// sent first.
const (
	Overhear    Attack = "receive the answers to what a container has sent to a host of the LAN"
	Impersonate Attack = "send to a host of the LAN in the name of a container's exchange"
	Answer      Attack = "send a datagram into a container's exchange with a host of the LAN"
	BreakOff    Attack = "break a container's exchange with a host of the LAN with a forged ICMP error"
	Enter       Attack = "reach a container at the port outside of its exchange, from another address or port"
	Leak        Attack = "reach a host of the LAN with a source address that is neither the host's nor the attacker's"
)

// outbound are the attacks on exchanges that containers have begun.
var outbound = []scope{
	{Overhear, allAttackers},
	{Impersonate, allAttackers},
	{Answer, allAttackers},
	{BreakOff, allAttackers},
	{Enter, allAttackers},
	{Leak, containers},
}

// IsOutbound reports whether the attack is on exchanges that containers have begun.
func (a Attack) IsOutbound() bool {
	return slices.ContainsFunc(outbound, func(s scope) bool { return s.attack == a })
}

// Settings returns the settings that networks of driver d can have.
func Settings(d model.Driver) []Setting {
	switch t := d.Traits(); {
	case t.Bridge && !t.Overlay:
		return []Setting{Default, OutboundEBPF, Flowtable}
	case t.RoutesPeers:
		return []Setting{Default, Flowtable}
	}
	return nil
}
