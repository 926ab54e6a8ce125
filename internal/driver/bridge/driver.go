// Package bridge attaches sandboxes to a Linux bridge on the host. It does
// not publish ports.
//
// Theory of operation. Each endpoint is a veth pair: one end in the sandbox,
// the other a port of the network's bridge. The bridge holds the gateway
// address, so packets between two sandboxes of a network are switched, and
// packets to anywhere else are routed by the host, masqueraded where they
// leave it. From outside, only published ports and answers get in.
//
//	sandbox eth0 ── veth ── bridge (gateway) ── host's routing ── uplink
//
// With filter on, frames that the bridge switches also pass the host's
// iptables and nftables IP rules (br_netfilter); with filter off the host's
// switch for that is turned off while the network exists. The switch is the
// whole host's: other bridges lose the filtering too until the network goes.
// Ports are in hairpin mode unless the filter is off and hairpin is not set.
//
// Kernel: veth and bridge, any since 3.x; filter on needs br_netfilter and
// Linux 3.18. The bridge takes no part in spanning tree.
package bridge

import (
	"fairlead/internal/driver"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Driver implements driver.Driver.
type Driver struct{}

// Name implements driver.Driver.
func (Driver) Name() model.Driver { return model.DriverBridge }

// Needs implements driver.Driver.
func (Driver) Needs() []plan.Feature {
	return []plan.Feature{plan.FeatureVeth, plan.FeatureBridge, plan.FeatureNAT}
}

// Validate implements driver.Driver.
func (Driver) Validate(n model.Network, f plan.Facts) error { return driver.CheckSwitch(n, f) }

// Complete implements driver.Driver: there is nothing to find out.
func (Driver) Complete(n model.Network, _ plan.Facts) model.Network { return n }

// Network implements driver.Driver.
func (Driver) Network(n model.Network, f plan.Facts) plan.Plan {
	return driver.Switch(n, f, driver.LinkLocal)
}

// Endpoint implements driver.Driver.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan { return driver.SwitchPort(n, e) }

// Attachment implements driver.Driver.
func (Driver) Attachment(n model.Network, e model.Endpoint) plan.Attachment {
	return driver.SwitchAttachment(n, e)
}
