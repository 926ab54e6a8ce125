// Package vxlan attaches sandboxes of several hosts to one network. It does
// not publish ports, and does not find out who the other hosts are.
//
// Theory of operation. On each host the network is a bridge as in package
// bridge, with one port more: a VXLAN link, which wraps a frame for another
// host's sandbox into a UDP datagram (RFC 7348). Every host has an address of
// its own in the subnet, leases from a range of its own, and is the gateway of
// its own sandboxes.
//
//	sandbox eth0 ── veth ── bridge ── VXLAN ══ underlay ══ VXLAN ── bridge ── veth ── eth0 sandbox
//	                          │                                      │
//	                  host's routing                         host's routing
//
// What is known of another host's sandboxes is set: a neighbour entry, by which
// the bridge answers ARP and neighbour solicitations in the other's place, and
// a forwarding entry, which says behind which host the hardware address is.
// That address follows from the IP address (driver.EndpointMAC). So no request
// for a known sandbox is sent to other hosts. For an unknown one every host gets a copy of
// the question, and the tunnel learns from the answer.
//
// Several underlays share one VXLAN link, which is bound to none: each host's
// address is routed like any other, and what goes to a host of several
// addresses is spread over them by sandbox. A link for each underlay would make
// loops in the bridge. Then nothing is learnt, because Linux drops what comes
// from another address of a known host.
//
// Encrypted, the tunnel runs over a WireGuard link of the network's own,
// between link-local addresses that follow from the hosts' addresses. By that
// choice Linux takes datagrams of the tunnel from this link only, and has no
// other to send them by: neither can plain text get in, nor out.
//
// The tunnel's own datagrams, and WireGuard's, pass by connection tracking
// (plan.Untracked): there is nothing in them to translate.
//
// Kernel: VXLAN over IPv6 needs Linux 3.12, the suppression 4.15, WireGuard
// 5.6. Limits: all hosts of an overlay speak one address family; who is not
// encrypted trusts the underlay, as VXLAN knows no sender.
package vxlan

import (
	"fmt"
	"net/netip"
	"slices"

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

// Complete implements driver.Driver: the MTU is what the way to the other hosts
// leaves, and a host that is among the peers leases from the range there.
func (Driver) Complete(n model.Network, f plan.Facts) model.Network {
	u, err := underlay.Find(n, f)
	if err != nil {
		return n // said by Validate
	}
	if n.MTU == 0 {
		n.MTU = u.Room(n)
	}
	n.Subnets = slices.Clone(n.Subnets)
	for i, s := range n.Subnets {
		n.Subnets[i] = u.Own(s)
	}
	return n
}

// Network implements driver.Driver.
func (Driver) Network(n model.Network, f plan.Facts) plan.Plan {
	u, err := underlay.Find(n, f)
	if err != nil {
		return nil // said by Validate
	}
	p := driver.Switch(n, f, underlay.LinkLocal(n))
	t := plan.Tunnel{Name: driver.TunnelLink(n.Name), VNI: n.Overlay.VNI, Port: n.Overlay.WirePort(), Local: u.Local,
		Underlay: u.Link, Group: n.Overlay.Group, Learning: !u.Local.IsUnspecified(), MTU: n.LinkMTU(), MAC: driver.MAC(n.Subnets[0].HostAddress()), Owner: n.Name,
		Master: driver.BridgeLink(n.Name)}
	remote := func(a netip.Addr) netip.Addr { return a }
	via := ""
	if n.Overlay.Encrypt {
		p = append(p, wireGuard(n, u)...)
		via, remote = driver.WireGuardLink(n.Name), underlay.Inner
		t.Local, t.Underlay, t.Port = underlay.Inner(u.Local), via, model.PortVXLAN
	}
	p = append(p, plan.NoTrack{Port: t.Port}, t)
	if !n.Overlay.Group.IsValid() {
		for _, peer := range u.Peers {
			p = append(p, plan.Forwarding{Link: t.Name, MAC: plan.Unknown, Remote: remote(peer.Address), Underlay: via})
		}
	}
	for _, k := range u.Known(n) {
		p = append(p, plan.Forwarding{Link: t.Name, MAC: k.MAC, Remote: remote(k.Host), Underlay: via})
		for _, a := range k.Addresses {
			p = append(p, plan.Neighbor{Link: t.Master, Addr: a, MAC: k.MAC})
		}
	}
	return p
}

// wireGuard plans the WireGuard link that carries an encrypted overlay.
func wireGuard(n model.Network, u underlay.Underlay) plan.Plan {
	link, port := driver.WireGuardLink(n.Name), n.Overlay.WirePort()
	p := plan.Plan{
		plan.NoTrack{Port: port, Both: true},
		plan.WireGuard{Name: link, KeyFile: n.Overlay.KeyFile, Local: u.Local, Port: port, MTU: n.LinkMTU() + underlay.TunnelOverhead(false), Owner: n.Name, IPv6: plan.IPv6Fixed},
		plan.Address{Link: link, Prefix: netip.PrefixFrom(underlay.Inner(u.Local), 64)}}
	for _, peer := range u.Peers {
		p = append(p, plan.WireGuardPeer{Link: link, KeyFile: n.Overlay.KeyFile,
			Endpoint: netip.AddrPortFrom(peer.Address, port), Inner: underlay.Inner(peer.Address)})
	}
	return p
}

// Endpoint implements driver.Driver. The host knows its own sandboxes, too:
// its questions would go to all hosts.
func (Driver) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	p := driver.SwitchPort(n, e)
	for _, a := range e.Addresses {
		p = append(p, plan.Neighbor{Link: driver.BridgeLink(n.Name), Addr: a, MAC: driver.EndpointMAC(e)})
	}
	return p
}

// Attachment implements driver.Driver.
func (Driver) Attachment(n model.Network, e model.Endpoint) plan.Attachment {
	return driver.SwitchAttachment(n, e)
}
