// Package vxlan attaches sandboxes of several hosts to one network. It does not
// publish ports, and does not discover the other hosts.
//
// Theory of operation. On each host the network is a bridge as in package bridge,
// with one additional port: a VXLAN link, which encapsulates a frame for a sandbox
// on another host in a UDP datagram (RFC 7348). Every host has its own address and
// its own range in the subnet. It allocates addresses from its range, and is the
// gateway of its own sandboxes.
//
//	sandbox eth0 ── veth ── bridge ── VXLAN ══ underlay ══ VXLAN ── bridge ── veth ── eth0 sandbox
//	                          │                                      │
//	                  host's routing                         host's routing
//
// For each known sandbox of another host the driver plans two entries. With the
// neighbour entry, the bridge itself answers ARP requests and neighbour
// solicitations for the sandbox. The forwarding entry maps the sandbox's hardware
// address, which is derived from its IP address (driver.EndpointMAC), to its host. So
// no request for a known sandbox is sent to other hosts. A request for an unknown
// sandbox is sent to every host, and the tunnel learns from the answer.
//
// If the peers' ranges say where each address is (ByRange), the driver plans both
// entries for every address of the ranges, and nothing is flooded or learned. A packet
// to an address of no range does not leave the host.
//
// Several underlays share one VXLAN link, which is bound to none of them. Each
// host's address is routed like any other. If a host has several addresses, its
// sandboxes are distributed over them. One VXLAN link per underlay would make loops
// in the bridge. With several underlays, learning is off: a VXLAN link that learns
// drops packets from another address of a known host.
//
// If the overlay is encrypted, the tunnel runs over the network's WireGuard link,
// between link-local addresses that are derived from the hosts' addresses. Because
// the addresses are link-local, Linux accepts datagrams of the tunnel only from this
// link, and sends them only through it: no plain text gets in or out.
//
// The datagrams of the tunnel and of WireGuard bypass connection tracking
// (plan.NoTrack): they need no translation.
//
// Kernel: VXLAN over IPv6 needs Linux 3.12, ARP and ND suppression 4.15, WireGuard
// 5.6. Limits: all hosts of an overlay use one address family. An overlay that is
// not encrypted must trust the underlay, because VXLAN does not authenticate
// senders.
package vxlan

import (
	"fmt"
	"net/netip"

	"fairlead/internal/driver"
	"fairlead/internal/driver/internal/underlay"
	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Driver implements driver.Driver.
type Driver struct{}

// Name implements driver.Driver.
func (Driver) Name() model.Driver { return model.DriverVXLAN }

// Needs implements driver.Driver.
func (Driver) Needs() []plan.Feature {
	return []plan.Feature{plan.FeatureVeth, plan.FeatureBridge, plan.FeatureNAT, plan.FeatureVXLAN}
}

// Validate implements driver.Driver.
func (Driver) Validate(n model.Network, f plan.Facts) error {
	if err := driver.CheckSwitch(n, f); err != nil {
		return err
	}
	for _, needed := range []plan.Feature{plan.FeatureWireGuard, plan.FeatureIPv6} {
		if n.Overlay.Encrypt && !f.Has(needed) {
			return fmt.Errorf("encrypt: %s", f.Missing[needed])
		}
	}
	u, err := underlay.Find(n, f)
	if err != nil {
		return err
	}
	return u.Check(n)
}

// Complete implements driver.Driver. The default MTU is the largest one that fits
// the routes to the other hosts. A host in the list of peers allocates addresses
// from its range in that list.
func (Driver) Complete(n model.Network, f plan.Facts) model.Network {
	u, err := underlay.Find(n, f)
	if err != nil {
		return n // Validate returns the error
	}
	if n.MTU == 0 {
		n.MTU = u.Room(n)
	}
	return u.Complete(n)
}

// Network implements driver.Driver.
func (Driver) Network(n model.Network, f plan.Facts) plan.Plan {
	u, err := underlay.Find(n, f)
	if err != nil {
		return nil // Validate returns the error
	}
	p := driver.Switch(n, f, underlay.LinkLocal(n))
	t := plan.Tunnel{Name: driver.TunnelLink(n.Name), VNI: n.Overlay.VNI, Port: n.Overlay.WirePort(), Local: u.Local,
		Underlay: u.Link, Group: n.Overlay.Group, Learning: !u.Local.IsUnspecified() && !n.Overlay.ByRange,
		MTU: n.LinkMTU(), MAC: driver.MAC(n.Subnets[0].HostAddress()), Owner: n.Name,
		Master: driver.BridgeLink(n.Name)}
	remote := func(a netip.Addr) netip.Addr { return a }
	via := ""
	if n.Overlay.Encrypt {
		p = append(p, wireGuard(n, u)...)
		via, remote = driver.WireGuardLink(n.Name), underlay.Inner
		t.Local, t.Underlay, t.Port = underlay.Inner(u.Local), via, model.PortVXLAN
	}
	untracked := plan.NoTrack{Port: t.Port}
	if !t.Local.IsUnspecified() && !t.Group.IsValid() {
		untracked.Local = t.Local
	}
	p = append(p, untracked, t)
	known := u.Known(n)
	if n.Overlay.ByRange {
		known = append(known, u.Ranged(n)...)
		p = append(p, programs(n, u, t))
	} else if !n.Overlay.Group.IsValid() {
		for _, peer := range u.Peers {
			p = append(p, plan.Forwarding{Link: t.Name, MAC: plan.Unknown, Remote: remote(peer.Address), Underlay: via})
		}
	}
	for _, k := range known {
		p = append(p, plan.Forwarding{Link: t.Name, MAC: k.MAC, Remote: remote(k.Host), Underlay: via})
		for _, a := range k.Addresses {
			p = append(p, plan.Neighbor{Link: t.Master, Addr: a, MAC: k.MAC})
		}
	}
	return p
}

// programs plans the eBPF programs that send and receive frames with fewer steps than the
// kernel.
func programs(n model.Network, u underlay.Underlay, t plan.Tunnel) plan.OverlayPrograms {
	o := plan.OverlayPrograms{Link: t.Name}
	for _, r := range u.Placed(n) {
		o.VNI, o.Port, o.Local = t.VNI, t.Port, t.Local
		o.Ranges = append(o.Ranges, plan.OverlayRange(r))
	}
	return o
}

// wireGuard plans the WireGuard link that carries an encrypted overlay.
func wireGuard(n model.Network, u underlay.Underlay) plan.Plan {
	link, port := driver.WireGuardLink(n.Name), n.Overlay.WirePort()
	p := plan.Plan{
		plan.NoTrack{Port: port, Both: true},
		plan.WireGuard{Name: link, KeyFile: n.Overlay.KeyFile, Local: u.Local, Port: port,
			PublicKey: u.Self.PublicKey, MTU: max(n.LinkMTU()+model.TunnelOverhead(false), model.MinIPv6MTU),
			Owner: n.Name, IPv6: plan.IPv6Fixed},
		plan.Address{Link: link, Prefix: netip.PrefixFrom(underlay.Inner(u.Local), 64)}}
	for _, peer := range u.Peers {
		p = append(p, plan.WireGuardPeer{Link: link, KeyFile: n.Overlay.KeyFile, PublicKey: peer.PublicKey,
			Endpoint: netip.AddrPortFrom(peer.Address, port), Inner: underlay.Inner(peer.Address)})
	}
	return p
}

// Endpoint implements driver.Driver. It plans neighbour entries for sandboxes of
// this host too: without them, the host's requests would go to all hosts.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	p := driver.SwitchPort(n, e)
	for _, a := range e.Addresses {
		p = append(p, plan.Neighbor{Link: driver.BridgeLink(n.Name), Addr: a, MAC: driver.EndpointMAC(e)})
	}
	// The programs bypass the host's rules for frames on bridges, and a limit on what the
	// sandbox receives.
	if n.Overlay.ByRange && n.Filter == model.FilterOff && e.Limit.In == 0 {
		p = append(p, plan.OverlayStation{Tunnel: driver.TunnelLink(n.Name), Link: driver.VethLink(e.Name),
			MAC: driver.EndpointMAC(e)})
	}
	return p
}

// Attachment implements driver.Driver.
func (Driver) Attachment(n model.Network, e model.Endpoint) plan.Attachment {
	return driver.SwitchAttachment(n, e)
}
