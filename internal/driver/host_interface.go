package driver

import (
	"net/netip"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// EndpointPlan returns the driver's plan for the endpoint. For an external
// endpoint, whose link another program moves into the sandbox, the plan contains
// only the objects on the host, and the link is created on the host.
func EndpointPlan(d Driver, n model.Network, e model.Endpoint) plan.Plan {
	p := d.Endpoint(n, e)
	if e.HostInterface == "" {
		return p
	}
	p = slices.DeleteFunc(p, func(o plan.Object) bool { return movesAlong(o, e.Sandbox) })
	for i, o := range p {
		switch o := o.(type) {
		case plan.Link:
			if o.Kind == plan.Veth {
				o.Peer, o.PeerNetns, o.Inside, o.Sandbox = e.HostInterface, "", true, e.Sandbox
			}
			p[i] = o
		case plan.SubLink:
			if o.Netns == e.Sandbox {
				o.Name, o.Netns, o.Inside = e.HostInterface, "", e.Sandbox
			}
			p[i] = o
		}
	}
	return p
}

// SandboxConfig is the configuration of an endpoint's link in its sandbox, for the
// program that moves the link there.
type SandboxConfig struct {
	// MAC is the hardware address. If empty, the kernel chooses it.
	MAC string
	// Gateways are the next hops of the default routes, at most one per address
	// family.
	Gateways []netip.Addr
	// Routes are the other routes, in the order in which they must be added.
	Routes []model.Route
}

// Inside returns the configuration of the endpoint's link in its sandbox. It
// assumes that the addresses there have the prefix lengths of their subnets, as
// container engines set them. If the driver plans the address as a /32 or /128, two
// routes to the halves of the subnet go via the gateway: they are more specific
// than the subnet's own route.
func Inside(d Driver, n model.Network, e model.Endpoint) SandboxConfig {
	var in SandboxConfig
	var halves []model.Route
	for _, o := range d.Endpoint(n, e) {
		switch o := o.(type) {
		case plan.Link:
			if o.Kind == plan.Veth {
				in.MAC = o.PeerMAC
			}
		case plan.SubLink:
			if o.Netns == e.Sandbox {
				in.MAC = o.MAC
			}
		case plan.Route:
			switch {
			case o.Netns != e.Sandbox:
			case o.To.Bits() == 0 && o.Via.IsValid():
				in.Gateways = append(in.Gateways, o.Via)
			default:
				in.Routes = append(in.Routes, model.Route{To: o.To, Via: o.Via})
			}
		case plan.Address:
			if o.Netns == e.Sandbox {
				halves = append(halves, detour(n, o.Prefix)...)
			}
		}
	}
	in.Routes = append(in.Routes, halves...)
	return in
}

// detour returns routes via the gateway to both halves of the address's subnet, if
// the driver plans the address without the subnet on its link.
func detour(n model.Network, p netip.Prefix) []model.Route {
	for _, s := range n.Subnets {
		if !s.Prefix.Contains(p.Addr()) || p.Bits() <= s.Prefix.Bits() || s.Prefix.Bits() >= p.Addr().BitLen()-1 {
			continue
		}
		bits := s.Prefix.Bits() + 1
		low := netip.PrefixFrom(s.Prefix.Masked().Addr(), bits)
		bytes := low.Addr().AsSlice()
		bytes[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
		upper, _ := netip.AddrFromSlice(bytes)
		return []model.Route{{To: low, Via: s.GatewayAddress()},
			{To: netip.PrefixFrom(upper, bits), Via: s.GatewayAddress()}}
	}
	return nil
}

// movesAlong reports whether the object goes into the sandbox with the endpoint's
// link: it is in the sandbox, and it is not a link itself.
func movesAlong(o plan.Object, sandbox string) bool {
	_, _, link := plan.InSandbox(o)
	return !link && plan.NetnsOf(o) == sandbox
}
