// Package routed attaches each sandbox with a veth pair without a bridge. It does
// not publish ports, and does not announce routes to other hosts.
//
// Theory of operation. The host's end of each pair has the gateway address as a
// /32 (/128), and the host has one route to each endpoint. The sandbox has its
// address as a /32 (/128) and a default route through the gateway. The host routes
// every packet and switches none. So there is no ARP between sandboxes, no flooding
// and no br_netfilter, and other hosts see the endpoint's own address.
//
//	sandbox eth0 (addr/32) ── veth (gateway/32) ── host's routing ── uplink
//
// Parts of the subnets can be on other hosts of the LAN (Remote). The host has one route
// to each part, via the address of its host. Their packets are not encapsulated.
//
// The LAN reaches an endpoint if its routers have a route to the subnet through
// this host. The driver does not filter packets to the endpoint: all its ports are
// reachable unless a firewall blocks them. So a network that is not internal has no
// rules, and if no other network or publish has rules either, no connection is
// tracked. Kernel: any with veth (3.x).
//
// With flowtable, established connections with other hosts pass an nftables flowtable
// (plan.Flowtable) instead of routing, conntrack and the FORWARD hook. It needs
// connection tracking, and Linux 5.13.
package routed

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
func (Driver) Name() model.Driver { return model.DriverRouted }

// Needs implements driver.Driver.
func (Driver) Needs() []plan.Feature { return []plan.Feature{plan.FeatureVeth, plan.FeatureNAT} }

// Validate implements driver.Driver.
func (Driver) Validate(n model.Network, f plan.Facts) error {
	if len(n.Subnets) == 0 {
		return errors.New("a routed network needs a subnet, e.g. 172.30.0.0/24")
	}
	for _, r := range n.Remote {
		l, ok := f.Links[r.Via.String()]
		if !ok || !slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Contains(r.Via) }) {
			return fmt.Errorf("host %s: no link of this host has its subnet, and driver routed connects the hosts of one LAN: use driver vxlan",
				r.Via)
		}
	}
	if err := driver.CheckFlowtable(n, f); err != nil {
		return err
	}
	return driver.CheckSettings(n, driver.Flowtable)
}

// Complete implements driver.Driver. It changes nothing.
func (Driver) Complete(n model.Network, _ plan.Facts) model.Network { return n }

// Network implements driver.Driver.
func (Driver) Network(n model.Network, f plan.Facts) plan.Plan {
	p := driver.Forwarding(n)
	if n.Internal {
		p = plan.Plan{plan.Table{}}
	}
	for _, r := range n.Remote {
		p = append(p, plan.Route{To: r.To.Masked(), Via: r.Via, Link: f.Links[r.Via.String()].Name})
	}
	return p
}

// Endpoint implements driver.Driver.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	link := driver.VethLink(e.Name)
	ipv6 := driver.EndpointIPv6(n, e)
	p := append(driver.Sandbox(n, e),
		plan.Link{Name: link, Kind: plan.Veth, MTU: n.LinkMTU(), Owner: e.Name, Group: driver.LinkGroup(n), IPv6: ipv6,
			Peer: e.InterfaceName(), PeerNetns: e.Sandbox, PeerMAC: driver.EndpointMAC(e), PeerIPv6: ipv6},
		plan.Member{Set: plan.SetLinks, Link: link})
	for _, s := range n.Subnets {
		addr, ok := e.Address(s.Prefix.Addr().Is4())
		if !ok {
			continue
		}
		if addr.Is6() {
			p = append(p, plan.Address{Link: link, Prefix: driver.LinkLocal})
		}
		gateway := s.GatewayAddress()
		p = append(p,
			plan.Address{Link: link, Prefix: driver.Host(gateway)},
			plan.Route{To: driver.Host(addr), Link: link},
			plan.Member{Set: plan.SetSandboxes, Src: driver.Host(addr), Dst: driver.Default(addr)},
			plan.Address{Netns: e.Sandbox, Link: e.InterfaceName(), Prefix: driver.Host(addr)},
			plan.Route{Netns: e.Sandbox, To: driver.Host(gateway), Link: e.InterfaceName()})
		p = append(p, driver.DefaultRoute(e, gateway)...)
	}
	return slices.Concat(p, driver.Flows(n, link), driver.Extras(e), driver.Towards(e, link))
}

// Attachment implements driver.Driver. Only answers of the endpoint to itself
// bypass the host.
func (Driver) Attachment(n model.Network, e model.Endpoint) plan.Attachment {
	a := plan.Attachment{Addresses: e.Addresses, Link: driver.VethLink(e.Name), Port: driver.VethLink(e.Name),
		Shaped: e.Limit.In != 0, Internal: n.Internal}
	for _, s := range n.Subnets {
		a.Gateways = append(a.Gateways, s.GatewayAddress())
	}
	for _, addr := range e.Addresses {
		a.Bypass = append(a.Bypass, plan.Within(driver.Host(addr)))
	}
	return driver.Returning(a, e)
}
