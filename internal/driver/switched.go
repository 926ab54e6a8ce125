package driver

import (
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// CheckSwitch returns an error if the host does not support a setting of the
// network's bridge. further are the settings that only its driver supports.
func CheckSwitch(n model.Network, f plan.Facts, further ...Setting) error {
	if len(n.Subnets) == 0 {
		return fmt.Errorf("a %s network needs a subnet, e.g. 172.30.0.0/24", n.Driver)
	}
	if n.Filter == model.FilterOn && !f.Has(plan.FeatureBridgeFilter) {
		return fmt.Errorf("filter on: %s", f.Missing[plan.FeatureBridgeFilter])
	}
	return CheckSettings(n, append(further, Filter, Hairpin)...)
}

// Switch plans a network's bridge, the host's addresses on it and its firewall
// rules. linkLocal is the host's IPv6 link-local address on the bridge.
func Switch(n model.Network, f plan.Facts, linkLocal netip.Prefix) plan.Plan {
	link := BridgeLink(n.Name)
	var p plan.Plan
	if !n.Internal {
		p = Forwarding(n)
	}
	if n.Filter == model.FilterOff && f.Has(plan.FeatureBridgeFilter) {
		p = append(p, plan.Sysctl{Name: plan.SysctlBridgeFilter4, Value: "0"},
			plan.Sysctl{Name: plan.SysctlBridgeFilter6, Value: "0"})
	}
	p = append(p, plan.Link{Name: link, Kind: plan.Bridge, MTU: n.LinkMTU(), Owner: n.Name, Group: LinkGroup(n),
		MAC: MAC(n.Subnets[0].HostAddress()), Filter: n.Filter == model.FilterOn, IPv6: NetworkIPv6(n)})
	for _, s := range n.Subnets {
		p = append(p, plan.Address{Link: link, Prefix: netip.PrefixFrom(s.HostAddress(), s.Prefix.Bits())})
		if s.Prefix.Addr().Is6() {
			p = append(p, plan.Address{Link: link, Prefix: linkLocal})
		}
	}
	return slices.Concat(p, switchRules(n, link), Flows(n, link))
}

// switchRules plans the rules that isolate the network, and masquerade its packets
// to other networks unless it is internal.
func switchRules(n model.Network, link string) plan.Plan {
	p := plan.Plan{plan.Table{},
		plan.Member{Set: plan.SetLinks, Link: link},
		plan.Member{Set: plan.SetWithin, Link: link}}
	for _, s := range n.Subnets {
		p = append(p, plan.Member{Set: plan.SetSandboxes, Src: s.Prefix.Masked(), Dst: Default(s.Prefix.Addr())})
	}
	if n.Internal {
		return p
	}
	p = append(p, plan.Member{Set: plan.SetIsolated, Link: link})
	for _, s := range n.Subnets {
		p = append(p, plan.Member{Set: plan.SetOutbound, Src: s.Prefix.Masked(), Dst: Default(s.Prefix.Addr())})
	}
	return p
}

// SwitchPort plans the link of one sandbox, which is a port of the network's bridge.
func SwitchPort(n model.Network, e model.Endpoint) plan.Plan {
	link := VethLink(e.Name)
	port := plan.Link{Name: link, Kind: plan.Veth, MTU: n.LinkMTU(), Owner: e.Name,
		Master: BridgeLink(n.Name), Hairpin: hairpin(n),
		Peer: e.InterfaceName(), PeerNetns: e.Sandbox, PeerMAC: EndpointMAC(e), PeerIPv6: EndpointIPv6(n, e)}
	return slices.Concat(Sandbox(n, e), plan.Plan{port}, Flows(n, link), Addressing(n, e), Towards(e, link))
}

// Flows plans that established connections through a link of the network bypass the
// host's FORWARD rules, if the network has flowtable.
func Flows(n model.Network, link string) plan.Plan {
	if !n.Flowtable {
		return nil
	}
	return plan.Plan{plan.Flowtable{}, plan.FlowtableLink{Link: link}}
}

// CheckFlowtable returns an error if the kernel has no flowtables and the network wants one.
func CheckFlowtable(n model.Network, f plan.Facts) error {
	if missing := f.Missing[plan.FeatureFlowtable]; n.Flowtable && missing != "" {
		return fmt.Errorf("flowtable: %s", missing)
	}
	return nil
}

// hairpin reports whether the bridge may send a frame out through the port that it
// came in through. With br_netfilter a sandbox that reaches itself via NAT needs
// that: the address is rewritten in the bridge, which then switches the frame, and
// the host never routes it.
func hairpin(n model.Network) bool { return n.Hairpin || n.Filter != model.FilterOff }

// SwitchAttachment returns how publish modes reach a sandbox on the network's
// bridge. Its answers to neighbours on the bridge bypass the host.
func SwitchAttachment(n model.Network, e model.Endpoint) plan.Attachment {
	a := plan.Attachment{Addresses: e.Addresses, Link: BridgeLink(n.Name), Port: VethLink(e.Name),
		Shaped: e.Limit.In != 0, Internal: n.Internal}
	for _, s := range n.Subnets {
		a.Bypass = append(a.Bypass, plan.Within(s.Prefix.Masked()))
		a.Gateways = append(a.Gateways, s.HostAddress())
	}
	return Returning(a, e)
}
