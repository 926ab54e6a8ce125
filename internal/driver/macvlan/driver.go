// Package macvlan attaches sandboxes to the LAN of a link of the host, the
// parent, each with a hardware address of its own. It does not find out which
// addresses the LAN has free.
//
// Theory of operation. Each sandbox holds a macvlan of the parent: what the
// parent's card receives for its hardware address, the kernel hands straight to
// the sandbox, and what the sandbox sends leaves by the card, past the host's
// routing and netfilter. On the LAN a sandbox is a host like any other.
//
//	sandbox eth0 (macvlan) ──┐
//	sandbox eth0 (macvlan) ──┼── parent ── LAN
//	   host fm-net (macvlan) ┘     │
//	                          host's stack
//
// In mode bridge the kernel switches between macvlans of one parent. Parent and
// macvlan never hear each other, so the host has a macvlan of its own beside
// the sandboxes, the shim: made with the first endpoint, gone with the last. It
// has an address of its own in each subnet, and the host has a route to each
// endpoint via it. The host answers on the parent's addresses by the shim too, but only
// sandboxes: else the LAN would find it by two hardware addresses.
//
// Published packets are rewritten by the host and leave by the shim. Their
// sender becomes the host, always: a sandbox answers any other client directly,
// from an address that the client never asked.
//
// Modes private and vepa keep the sandboxes apart, or send what they say to
// each other through the LAN's switch, which must send it back; passthru gives
// the parent to one sandbox whole. There the host has no shim. Kernel: macvlan,
// Linux 3.0. Limits: the parent must be Ethernet and no wireless station; a
// switch that admits one hardware address a port stops it; hypervisors often
// do, unless they are configured for it.
package macvlan

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
func (Driver) Name() model.Driver { return model.DriverMacvlan }

// Needs implements driver.Driver.
func (Driver) Needs() []plan.Feature { return []plan.Feature{plan.FeatureMacvlan} }

var modes = []model.Mode{model.ModeBridge, model.ModePrivate, model.ModeVEPA, model.ModePassthru}

// branching is how the network's links branch.
func branching(n model.Network) driver.SubLinks {
	b := driver.SubLinks{Kind: plan.Macvlan, Mode: n.Mode, Switched: true}
	if b.Mode == "" {
		b.Mode = model.ModeBridge
	}
	// In mode passthru a hardware address would become the parent's.
	b.Shim, b.OwnMAC = b.Mode == model.ModeBridge, b.Mode != model.ModePassthru
	return b
}

// Validate implements driver.Driver.
func (Driver) Validate(n model.Network, f plan.Facts) error {
	if n.Mode != "" && !slices.Contains(modes, n.Mode) {
		return fmt.Errorf("mode %q: want bridge, private, vepa or passthru", n.Mode)
	}
	if f.Links[n.Parent].Wireless {
		return fmt.Errorf("parent %s is wireless: its access point takes frames from one hardware address only: use driver ipvlan in mode l2, whose sandboxes share the parent's", n.Parent)
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
