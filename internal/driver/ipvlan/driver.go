// Package ipvlan attaches sandboxes to the LAN of a link of the host, the parent.
// They share the parent's hardware address. It does not find out which addresses
// are free on the LAN.
//
// Theory of operation. Each sandbox has an ipvlan link of the parent. The kernel
// passes a packet that the parent's card receives to the sandbox that has its
// destination IP address. Packets from a sandbox leave through the card. The LAN
// sees only the host's hardware address. So the driver works on wireless stations
// and on switches that allow one hardware address per port.
//
//	sandbox eth0 (ipvlan) ──┐
//	sandbox eth0 (ipvlan) ──┼── parent ── LAN
//	   host fm-net (ipvlan) ┘     │
//	                         host's stack
//
// In mode l2 sandboxes use ARP and are hosts of the LAN. In the modes l3 and l3s
// the host routes their packets, and sends them through the parent. Such sandboxes
// need a separate subnet, and the LAN's routers need a route to it through this
// host. In mode l3s the packets to them also pass the host's netfilter (INPUT).
//
// The host cannot reach a sandbox through the parent. So it has its own ipvlan
// link, the shim, which is created with the first endpoint and deleted with the
// last. The shim has an address in each subnet, and the host has a route to each
// endpoint through the shim. Packets from a sandbox to the host's addresses on the
// parent come in through the parent, but the answers leave through the shim: a
// strict rp_filter on the parent drops such packets.
//
// The host rewrites packets to published ports and sends them through the shim. It
// always masquerades the client: a sandbox would answer any other client directly,
// from an address that the client did not send its request to.
//
// Kernel: ipvlan, Linux 3.19; l3s 4.9. Limits: the parent must be Ethernet or
// wireless. All networks of one parent have the same mode. A DHCP server that
// identifies clients by hardware address cannot distinguish the sandboxes.
package ipvlan

import (
	"fmt"
	"slices"

	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Driver implements driver.Driver.
type Driver struct{}

// Name implements driver.Driver.
func (Driver) Name() model.Driver { return model.DriverIPvlan }

// Needs implements driver.Driver.
func (Driver) Needs() []plan.Feature { return []plan.Feature{plan.FeatureIPvlan} }

var modes = []model.Mode{model.ModeL2, model.ModeL3, model.ModeL3S}

// branching returns the settings of the network's ipvlan links.
func branching(n model.Network) driver.SubLinks {
	b := driver.SubLinks{Kind: plan.IPvlan, Mode: n.Mode, Shim: true}
	if b.Mode == "" {
		b.Mode = model.ModeL2
	}
	b.Switched = b.Mode == model.ModeL2
	return b
}

// Validate implements driver.Driver.
func (Driver) Validate(n model.Network, f plan.Facts) error {
	if n.Mode != "" && !slices.Contains(modes, n.Mode) {
		return fmt.Errorf("mode %q: want l2, l3 or l3s", n.Mode)
	}
	return branching(n).Check(n, f)
}

// Complete implements driver.Driver.
func (Driver) Complete(n model.Network, f plan.Facts) model.Network {
	return branching(n).Complete(n, f)
}

// Network implements driver.Driver. It returns nil: Endpoint plans all links.
func (Driver) Network(model.Network, plan.Facts) plan.Plan { return nil }

// Endpoint implements driver.Driver.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	return branching(n).Endpoint(n, e)
}

// Attachment implements driver.Driver.
func (Driver) Attachment(n model.Network, e model.Endpoint) plan.Attachment {
	return branching(n).Attachment(n, e)
}
