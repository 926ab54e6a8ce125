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
// Ports are in hairpin mode unless the filter is off and nobody asked for it.
//
// Kernel: veth and bridge, any since 3.x; filter on needs br_netfilter and
// Linux 3.18. The bridge takes no part in spanning tree.
package bridge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
	if len(n.Subnets) == 0 {
		return errors.New("a bridge network needs a subnet, e.g. 172.30.0.0/24")
	}
	if n.Filter == model.FilterOn && !f.Has(plan.FeatureBridgeFilter) {
		return fmt.Errorf("filter on: %s", f.Missing[plan.FeatureBridgeFilter])
	}
	return nil
}

// Complete implements driver.Driver: there is nothing to find out.
func (Driver) Complete(n model.Network, _ plan.Facts) model.Network { return n }

// Network implements driver.Driver.
func (Driver) Network(n model.Network, f plan.Facts) plan.Plan {
	link := driver.BridgeLink(n.Name)
	var p plan.Plan
	if !n.Internal {
		p = driver.Forwarding(n)
	}
	if n.Filter == model.FilterOff && f.Has(plan.FeatureBridgeFilter) {
		p = append(p, plan.Sysctl{Name: plan.SysctlBridgeFilter4, Value: "0"},
			plan.Sysctl{Name: plan.SysctlBridgeFilter6, Value: "0"})
	}
	p = append(p, plan.Link{Name: link, Kind: plan.Bridge, MTU: n.LinkMTU(), Owner: n.Name,
		MAC: driver.MAC(n.Subnets[0].HostAddress()), Filter: n.Filter == model.FilterOn})
	for _, s := range n.Subnets {
		p = append(p, plan.Address{Link: link, Prefix: netip.PrefixFrom(s.HostAddress(), s.Prefix.Bits())})
		if s.Prefix.Addr().Is6() {
			p = append(p, plan.Address{Link: link, Prefix: driver.LinkLocal})
		}
	}
	return append(p, rules(n, link)...)
}

// rules fences the network off and lets it out.
func rules(n model.Network, link string) plan.Plan {
	fence := plan.SetIsolated
	if n.Internal {
		fence = plan.SetInternal
	}
	p := plan.Plan{plan.Table{},
		plan.Member{Set: plan.SetLinks, Link: link},
		plan.Member{Set: plan.SetWithin, Link: link},
		plan.Member{Set: fence, Link: link}}
	if n.Internal {
		return p
	}
	for _, s := range n.Subnets {
		p = append(p, plan.Member{Set: plan.SetOutbound, Src: s.Prefix.Masked(), Dst: driver.Default(s.Prefix.Addr())})
	}
	return p
}

// Endpoint implements driver.Driver.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	link := driver.VethLink(e.Name)
	p := plan.Plan{
		plan.Link{Netns: e.Sandbox, Name: "lo", Kind: plan.Loopback},
		plan.Link{Name: link, Kind: plan.Veth, MTU: n.LinkMTU(), Owner: e.Name,
			Master: driver.BridgeLink(n.Name), Hairpin: hairpin(n),
			Peer: e.InterfaceName(), PeerNetns: e.Sandbox, PeerMAC: driver.EndpointMAC(e)},
	}
	return slices.Concat(p, driver.Addressing(n, e), driver.Towards(e, link))
}

// hairpin says whether frames may leave by the port that they came in by. With
// br_netfilter a sandbox that reaches itself by NAT needs that: the address is
// rewritten in the bridge, which then switches the frame and never hands it
// to the host's routing.
func hairpin(n model.Network) bool { return n.Hairpin || n.Filter != model.FilterOff }

// Attachment implements driver.Driver. A neighbour on the bridge is answered
// directly, past the host.
func (Driver) Attachment(n model.Network, e model.Endpoint) plan.Attachment {
	a := plan.Attachment{Addresses: e.Addresses, Link: driver.BridgeLink(n.Name), Port: driver.VethLink(e.Name), Shaped: e.Limit.In != 0}
	for _, s := range n.Subnets {
		a.Bypass = append(a.Bypass, plan.Within(s.Prefix.Masked()))
		a.Gateways = append(a.Gateways, s.HostAddress())
	}
	return a
}
