package threat

import (
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// exposure is a set of cells in which the attack succeeds. An empty list and nil match
// every value.
type exposure struct {
	attack    Attack
	attackers []Attacker
	drivers   func(model.Traits) bool
	vias      []model.Carrier
	settings  []Setting
	how       string
	ipv6Only  bool
}

func (e exposure) covers(c Cell) bool {
	return e.attack == c.Attack && (len(e.attackers) == 0 || slices.Contains(e.attackers, c.Attacker)) &&
		(e.drivers == nil || e.drivers(c.Driver.Traits())) &&
		(len(e.vias) == 0 || slices.Contains(e.vias, carrierOf(c.Via))) &&
		(len(e.settings) == 0 || slices.Contains(e.settings, c.Setting))
}

// carrierOf returns the carrier of a publish mode of the table.
func carrierOf(via model.Via) model.Carrier {
	mode, _ := paths.Mode(via)
	return mode.Carrier()
}

func switched(t model.Traits) bool { return t.Bridge }
func routed(t model.Traits) bool   { return t.RoutesPeers }
func forwards(t model.Traits) bool { return !t.OnLAN }
func onLAN(t model.Traits) bool    { return t.OnLAN }

var (
	forwarded = []Attacker{SameNetwork, OtherNetwork}
	elsewhere = []Attacker{OtherNetwork, LANHost, OtherUplink}
	uplink    = []Attacker{OtherUplink}
	others    = []model.Carrier{model.CarrierUserSpace, model.CarrierPrograms}
	natted    = []model.Carrier{model.CarrierStack}
	tracked   = []Setting{Default, Flowtable}
	programs  = []Setting{OutboundEBPF}
	copied    = []model.Carrier{model.CarrierUserSpace, model.CarrierStack}
)

// The reasons why attacks succeed.
const (
	asDocker     = "as on Docker's bridge: the containers of a network share an Ethernet"
	asLAN        = "as every host of the LAN can: its containers are hosts of the LAN"
	noFence      = "the driver routes every port: a firewall of the host decides"
	noReversal   = "as on Docker's bridge: the host checks no source addresses"
	sameTuple    = "as on Docker's bridge: connection tracking knows a flow by its addresses alone"
	noReverse6   = "Linux has no reverse path filter for IPv6; for IPv4, rp_filter=1 on the uplink drops it"
	tracked6     = "IPv6 takes the path of outbound nft: connection tracking knows a flow by its addresses alone"
	anyoneErrors = "as on Docker's bridge: an ICMP error does not show who may send it, and clients believe it"
)

// exposures are the attacks that succeed. All others do not.
var exposures = []exposure{
	{attack: TakeAddress, drivers: switched, how: asDocker},
	{attack: TakeAddress, drivers: onLAN, how: asLAN},
	{attack: SpoofContainer, drivers: switched, how: asDocker},
	{attack: SpoofContainer, drivers: routed, how: noReversal},
	{attack: SpoofContainer, drivers: onLAN, how: asLAN},
	{attack: ServeDHCP, drivers: switched, how: asDocker},
	{attack: ServeDHCP, drivers: onLAN, how: asLAN},
	{attack: Fragment, attackers: elsewhere, drivers: routed, how: noFence},
	{attack: Fragment, attackers: elsewhere, drivers: onLAN, how: asLAN},
	{attack: Unpublished, attackers: elsewhere, drivers: routed, how: noFence},
	{attack: Unpublished, attackers: elsewhere, drivers: onLAN, how: asLAN},
	{attack: Inject, attackers: forwarded, drivers: forwards, vias: natted, how: sameTuple},
	{attack: Inject, attackers: uplink, drivers: forwards, vias: natted, how: noReverse6, ipv6Only: true},
	{attack: Inject, attackers: uplink, vias: others, how: noReverse6, ipv6Only: true},
	{attack: Inject, attackers: []Attacker{SameNetwork}, drivers: onLAN, how: asLAN},
	{attack: Loop, attackers: []Attacker{SameNetwork}, drivers: switched, vias: copied, how: asDocker},
	{attack: Loop, attackers: []Attacker{SameNetwork, LANHost}, drivers: onLAN, how: asLAN},
	{attack: Loop, attackers: uplink, drivers: onLAN, how: noReverse6, ipv6Only: true},
	{attack: ForgeError, attackers: []Attacker{SameNetwork, OtherNetwork, OtherUplink}, how: anyoneErrors},
	{attack: Impersonate, attackers: forwarded, settings: tracked, how: sameTuple},
	{attack: Impersonate, attackers: forwarded, settings: programs, how: tracked6, ipv6Only: true},
	{attack: Impersonate, attackers: []Attacker{LANHost}, how: asLAN},
	{attack: Impersonate, attackers: uplink, how: noReverse6, ipv6Only: true},
	{attack: Answer, attackers: forwarded, settings: tracked, how: sameTuple},
	{attack: Answer, attackers: forwarded, settings: programs, how: tracked6, ipv6Only: true},
	{attack: Answer, attackers: []Attacker{LANHost}, how: asLAN},
	{attack: Answer, attackers: uplink, how: noReverse6, ipv6Only: true},
	{attack: BreakOff, attackers: forwarded, settings: tracked, how: anyoneErrors},
	{attack: BreakOff, attackers: outside, settings: tracked, how: anyoneErrors},
	{attack: BreakOff, attackers: []Attacker{SameNetwork, LANHost}, settings: programs, how: anyoneErrors},
	{attack: BreakOff, attackers: []Attacker{OtherNetwork, OtherUplink}, settings: programs, how: tracked6,
		ipv6Only: true},
	{attack: Enter, attackers: []Attacker{SameNetwork, OtherNetwork, LANHost, OtherUplink}, drivers: routed,
		how: noFence},
	{attack: Leak, attackers: forwarded, how: noReversal},
}
