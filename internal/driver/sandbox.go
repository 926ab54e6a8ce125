package driver

import (
	"net/netip"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// EndpointMAC returns the hardware address that the endpoint gets.
func EndpointMAC(e model.Endpoint) string {
	if e.MAC != "" {
		return e.MAC
	}
	return MAC(e.AllAddresses()...)
}

// NetworkIPv6 returns the IPv6 mode of the network's links on the host.
func NetworkIPv6(n model.Network) plan.IPv6 {
	if slices.ContainsFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Addr().Is6() }) {
		return plan.IPv6Fixed
	}
	return plan.IPv6Off
}

// LinkGroup returns the group of the links that carry the packets of the network's
// sandboxes to the host.
func LinkGroup(n model.Network) plan.LinkGroup {
	if n.Internal {
		return plan.InternalLinks
	}
	return plan.SandboxLinks
}

// EndpointIPv6 returns the IPv6 mode of an endpoint's link in the sandbox. If the
// network has no subnets and the endpoint has no IPv6 address, the LAN configures
// IPv6. An IPv6 address enables IPv6 on the link, because container engines often
// disable it in new namespaces.
func EndpointIPv6(n model.Network, e model.Endpoint) plan.IPv6 {
	_, has := e.Address(false)
	switch {
	case has:
		return plan.IPv6Fixed
	case len(n.Subnets) == 0:
		return plan.IPv6Auto
	}
	return plan.IPv6Off
}

// Sandbox plans the objects that the sandbox needs before it gets a link of the
// network.
func Sandbox(n model.Network, e model.Endpoint) plan.Plan {
	p := plan.Plan{plan.Link{Netns: e.Sandbox, Name: "lo", Kind: plan.Loopback}}
	if EndpointIPv6(n, e) != plan.IPv6Auto {
		p = append(p, plan.SandboxRedirects(e.Sandbox))
	}
	return p
}

// Addressing plans the addresses, routes and send limit of the endpoint's link in
// the sandbox. An address of a subnet has the subnet's prefix length.
func Addressing(n model.Network, e model.Endpoint) plan.Plan {
	var p plan.Plan
	for _, s := range n.Subnets {
		addr, ok := e.Address(s.Prefix.Addr().Is4())
		if !ok {
			continue
		}
		p = append(p, plan.Address{Netns: e.Sandbox, Link: e.InterfaceName(),
			Prefix: netip.PrefixFrom(addr, s.Prefix.Bits())})
		if !n.Internal {
			p = append(p, DefaultRoute(e, Gateway(s, e))...)
		}
	}
	for _, prefix := range e.Prefixes {
		p = append(p, plan.Address{Netns: e.Sandbox, Link: e.InterfaceName(), Prefix: prefix})
		if gateway, ok := e.Gateway(prefix.Addr().Is4()); ok {
			p = append(p, DefaultRoute(e, gateway)...)
		}
	}
	return append(p, Extras(e)...)
}

// DefaultRoute plans the sandbox's default route via the gateway, unless the
// endpoint has NoDefault.
func DefaultRoute(e model.Endpoint, gateway netip.Addr) plan.Plan {
	if e.NoDefault {
		return nil
	}
	return plan.Plan{plan.Route{Netns: e.Sandbox, To: Default(gateway), Via: gateway, Link: e.InterfaceName()}}
}

// Returning returns the attachment of an endpoint whose answers return through the
// host, unless the endpoint has NoDefault: then answers to clients outside of the
// network leave by the sandbox's other links. Such clients must be masqueraded, also
// those that send UDP: a server that binds all addresses answers them with the address
// of the link by which the answer leaves, so a route by the source address would not
// suffice.
func Returning(a plan.Attachment, e model.Endpoint) plan.Attachment {
	if !e.NoDefault {
		return a
	}
	a.Away, a.Bypass = true, nil
	for _, addr := range e.Addresses {
		a.Bypass = append(a.Bypass, plan.Bypass{From: Default(addr), To: Host(addr)})
	}
	return a
}

// Gateway returns the next hop of the endpoint's default route in the subnet.
func Gateway(s model.Subnet, e model.Endpoint) netip.Addr {
	if own, ok := e.Gateway(s.Prefix.Addr().Is4()); ok {
		return own
	}
	return s.GatewayAddress()
}

// Extras plans the settings of an endpoint that do not depend on the driver: its
// further routes and its send limit.
func Extras(e model.Endpoint) plan.Plan {
	var p plan.Plan
	for _, r := range e.Routes {
		p = append(p, plan.Route{Netns: e.Sandbox, To: r.To, Via: r.Via, Link: e.InterfaceName()})
	}
	if e.Limit.Out != 0 {
		p = append(p, plan.Shaper{Netns: e.Sandbox, Link: e.InterfaceName(), Rate: e.Limit.Out})
	}
	return p
}

// Towards plans the limit on what the sandbox receives, on the host's end of its
// link.
func Towards(e model.Endpoint, link string) plan.Plan {
	if e.Limit.In == 0 {
		return nil
	}
	return plan.Plan{plan.Shaper{Link: link, Rate: e.Limit.In}}
}
