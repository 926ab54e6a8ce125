// Package bridge attaches sandboxes to a Linux bridge on the host. It does
// not publish ports.
//
// Theory of operation. Each endpoint is a veth pair: one end is in the sandbox,
// the other is a port of the network's bridge. The bridge has the gateway
// address. So the bridge switches packets between two sandboxes of a network, and
// the host routes all other packets and masquerades those that leave the host.
// From outside, only packets to published ports and answers reach a sandbox.
//
//	sandbox eth0 ── veth ── bridge (gateway) ── host's routing ── uplink
//
// With filter on, frames that the bridge switches also pass the host's iptables
// and nftables IP rules (br_netfilter). With filter off, the sysctls
// net.bridge.bridge-nf-call-* are 0 while the network exists. They apply to the
// whole host: until the network is removed, the frames of other bridges are not
// filtered either. Ports are in hairpin mode, unless filter is off and hairpin is
// not set.
//
// With outbound ebpf, eBPF programs translate the connections over IPv4 that sandboxes open
// to hosts outside, with ports of the host that nothing else uses, and redirect them past
// the bridge, conntrack and the host's FORWARD rules. Everything else goes as above.
//
//	sandbox eth0 ── veth ─[ eBPF ]─ uplink
//
// With flowtable, established connections with other hosts pass an nftables flowtable
// (plan.Flowtable) instead of routing, conntrack and the FORWARD hook.
//
// Kernel: any with veth and bridge (3.x). filter on needs br_netfilter and Linux
// 3.18, outbound ebpf Linux 5.14, flowtable Linux 5.13. The bridge does not use the spanning tree protocol.
package bridge

import (
	"fmt"
	"net/netip"

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
func (Driver) Validate(n model.Network, f plan.Facts) error {
	if missing := f.Missing[plan.FeatureEBPF]; n.Outbound == model.OutboundEBPF && missing != "" {
		return fmt.Errorf("outbound ebpf: %s", missing)
	}
	if err := driver.CheckFlowtable(n, f); err != nil {
		return err
	}
	return driver.CheckSwitch(n, f, driver.Outbound, driver.Flowtable)
}

// Complete implements driver.Driver. It changes nothing.
func (Driver) Complete(n model.Network, _ plan.Facts) model.Network { return n }

// Network implements driver.Driver.
func (Driver) Network(n model.Network, f plan.Facts) plan.Plan {
	p := driver.Switch(n, f, driver.LinkLocal)
	if n.Outbound == model.OutboundEBPF {
		all := driver.Default(netip.IPv4Unspecified())
		p = append(p, plan.Member{Set: plan.SetRenumbered, Src: all, Dst: all}, plan.Uplinks{})
	}
	return p
}

// Endpoint implements driver.Driver.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	p := driver.SwitchPort(n, e)
	// The programs would bypass a limit, and only the host's own gateway forwards packets to other hosts.
	if n.Outbound != model.OutboundEBPF || e.Limit.In != 0 || e.NoDefault {
		return p
	}
	link := driver.VethLink(e.Name)
	return append(p, plan.SandboxIngress(link, e.Addresses),
		plan.Outbound{Link: link, Router: driver.BridgeLink(n.Name)})
}

// Attachment implements driver.Driver.
func (Driver) Attachment(n model.Network, e model.Endpoint) plan.Attachment {
	return driver.SwitchAttachment(n, e)
}
