// Package ipvlan attaches sandboxes to the LAN of a link of the host, the
// parent, whose hardware address they share. It does not find out which
// addresses the LAN has free.
//
// Theory of operation. Each sandbox holds an ipvlan of the parent. The kernel
// hands what the parent's card receives to the sandbox that has the IP address,
// and what a sandbox sends leaves by the card. The LAN sees one hardware
// address, the host's: so it works on wireless stations and on switches that
// admit one address a port.
//
//	sandbox eth0 (ipvlan) ──┐
//	sandbox eth0 (ipvlan) ──┼── parent ── LAN
//	   host fm-net (ipvlan) ┘     │
//	                         host's stack
//
// In mode l2 sandboxes speak ARP and are hosts of the LAN. In modes l3 and l3s
// they communicate only with the host's routing, which sends for them by the
// parent; they need a subnet of their own, to which the LAN's routers know a
// route through this host. In l3s what they receive passes the host's netfilter
// too (INPUT).
//
// The host cannot reach a sandbox by the parent, and so has an ipvlan of its
// own beside them, the shim: made with the first endpoint, gone with the last.
// It has an address of its own in each subnet, and the host has a route to each
// endpoint via it. What a sandbox says to the host's addresses on the parent comes
// in by the parent, but is answered by the shim: a strict rp_filter on the
// parent drops it.
//
// Published packets are rewritten by the host and leave by the shim. Their
// sender becomes the host, always: a sandbox answers any other client directly,
// from an address that the client never asked.
//
// Kernel: ipvlan, Linux 3.19; l3s 4.9. Limits: the parent must be Ethernet or
// wireless; all networks of one parent have one mode; a DHCP server that knows
// clients by their hardware address takes all sandboxes for one.
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

// branching is how the network's links branch.
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

// Network implements driver.Driver: the links come with the endpoints.
func (Driver) Network(model.Network, plan.Facts) plan.Plan { return nil }

// Endpoint implements driver.Driver.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	return branching(n).Endpoint(n, e)
}

// Attachment implements driver.Driver.
func (Driver) Attachment(n model.Network, e model.Endpoint) plan.Attachment {
	return branching(n).Attachment(n, e)
}
