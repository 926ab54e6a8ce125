// Package macvlan attaches sandboxes to the LAN of a link of the host, the parent.
// Each sandbox has its own hardware address. It does not find out which addresses
// are free on the LAN.
//
// Theory of operation. Each sandbox has a macvlan link of the parent. The kernel
// passes a frame that the parent's card receives to the sandbox that has its
// destination hardware address. Frames from a sandbox leave through the card. They
// bypass the host's routing and netfilter. On the LAN a sandbox is a host like any
// other.
//
//	sandbox eth0 (macvlan) ──┐
//	sandbox eth0 (macvlan) ──┼── parent ── LAN
//	   host fm-net (macvlan) ┘     │
//	                          host's stack
//
// In mode bridge the kernel switches frames between the macvlan links of one
// parent, but not between them and the parent. So the host has its own macvlan
// link, the shim, which is created with the first endpoint and deleted with the
// last. The shim has an address in each subnet, and the host has a route to each
// endpoint through the shim. The shim also answers ARP requests for the parent's
// addresses, but only those from sandboxes: if it answered the LAN too, the LAN
// would see two hardware addresses for the host.
//
// The host rewrites packets to published ports and sends them through the shim. It
// always masquerades the client: a sandbox would answer any other client directly,
// from an address that the client did not send its request to.
//
// Mode private isolates the sandboxes from each other. Mode vepa sends their frames
// to each other through the LAN's switch, which must send them back. Mode passthru
// gives the whole parent to one sandbox. In these modes the host has no shim.
//
// If the parent is a macvlan itself, the kernel uses its parent instead. That is
// accepted only if that link is in another network namespace and cannot be named.
//
// Kernel: macvlan, Linux 3.0. Limits: the parent must be Ethernet, but not a
// wireless station. A switch that allows one hardware address per port drops the
// sandboxes' frames. Hypervisors often do, unless they are configured to allow
// more.
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

// branching returns the settings of the network's macvlan links.
func branching(n model.Network) driver.SubLinks {
	b := driver.SubLinks{Kind: plan.Macvlan, Mode: n.Mode, Switched: true}
	if b.Mode == "" {
		b.Mode = model.ModeBridge
	}
	// In mode passthru, setting a hardware address would change the parent's.
	b.Shim, b.OwnMAC = b.Mode == model.ModeBridge, b.Mode != model.ModePassthru
	return b
}

// Validate implements driver.Driver.
func (Driver) Validate(n model.Network, f plan.Facts) error {
	if n.Mode != "" && !slices.Contains(modes, n.Mode) {
		return fmt.Errorf("mode %q: want bridge, private, vepa or passthru", n.Mode)
	}
	if f.Links[n.Parent].Wireless {
		return fmt.Errorf("parent %s is wireless: its access point accepts frames from one hardware address only: use driver ipvlan in mode l2, whose sandboxes share the parent's address", n.Parent)
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
