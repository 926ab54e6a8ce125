package driver

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// SubLinks plans the networks of the drivers macvlan and ipvlan. Their sandboxes
// have sub-links of a link of the host, the network's parent.
type SubLinks struct {
	Kind plan.Kind
	// Mode is the network's mode, or the driver's default.
	Mode model.Mode
	// Shim says that the host has a sub-link too, through which it reaches the
	// sandboxes.
	Shim bool
	// Switched says that the sandboxes see the LAN's frames, and so its routers. If
	// false, the host routes for them.
	Switched bool
	// OwnMAC says that each sub-link has its own hardware address. If false, it has
	// the parent's.
	OwnMAC bool
}

// Check returns an error for each setting of the network that the host does not
// support.
func (b SubLinks) Check(n model.Network, f plan.Facts) error {
	if err := CheckSettings(n, Parent, Mode, VLAN); err != nil {
		return err
	}
	parent, known := f.Links[n.Parent]
	switch {
	case n.Parent == "":
		return fmt.Errorf("a %s network needs a parent, the host's link to the LAN, e.g. eth0", n.Driver)
	case n.Internal:
		return fmt.Errorf("internal: a %s network is on the LAN of its parent: use driver bridge for an internal network", n.Driver)
	case n.VLAN != 0 && !f.Has(plan.FeatureVLAN):
		return fmt.Errorf("vlan %d: %s", n.VLAN, f.Missing[plan.FeatureVLAN])
	case !known:
		return fmt.Errorf("parent %s: the host has no such link: `ip link` lists its links", n.Parent)
	}
	return errors.Join(checkParent(n, parent), checkMTU(n, parent), checkAddresses(n, parent))
}

// checkParent returns an error if the link cannot have sub-links.
func checkParent(n model.Network, parent plan.HostLink) error {
	switch {
	case parent.Encap == "loopback":
		return fmt.Errorf("parent %s is the loopback, which reaches no other host: use driver bridge for sandboxes that reach only each other and the host", n.Parent)
	case parent.Encap == "infiniband":
		return fmt.Errorf("parent %s is an InfiniBand link: it has no Ethernet address, so it cannot have such sub-links"+
			" (kernel error: invalid argument): use driver device with parent %s and a pkey, e.g. 0x8001, which gives each sandbox a child of the link", n.Parent, n.Parent)
	case parent.Encap != "ether":
		return fmt.Errorf("parent %s has no Ethernet address (link/%s), so it cannot have such sub-links: use driver routed, or name another parent", n.Parent, parent.Encap)
	case parent.Master != "":
		return fmt.Errorf("parent %s is a port of %s, which receives all its frames: name %s as the parent", n.Parent,
			parent.Master, parent.Master)
	case n.Driver == model.DriverMacvlan && parent.Kind == string(plan.Macvlan) && parent.ParentOutside:
		return nil // its own parent cannot be named, and the kernel uses that
	case slices.Contains([]string{"macvlan", "macvtap", "ipvlan", "ipvtap"}, parent.Kind):
		return fmt.Errorf("parent %s is of kind %s itself: name its own parent (`ip link` shows it after the @)",
			n.Parent, parent.Kind)
	}
	return nil
}

func checkMTU(n model.Network, parent plan.HostLink) error {
	if n.MTU > parent.MTU {
		return fmt.Errorf("mtu %d: parent %s takes %d bytes: lower the network's mtu, or raise the mtu of the parent (ip link set %s mtu %d) and of all hosts on its LAN",
			n.MTU, n.Parent, parent.MTU, parent.Name, n.MTU)
	}
	if v6 := slices.ContainsFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Addr().Is6() }); v6 &&
		parent.MTU < 1280 {
		return fmt.Errorf("parent %s takes %d bytes: IPv6 needs 1280 or more", n.Parent, parent.MTU)
	}
	return nil
}

// checkAddresses returns an error if the shim's address is already on the parent.
func checkAddresses(n model.Network, parent plan.HostLink) error {
	for _, s := range n.Subnets {
		if slices.Contains(addresses(parent), s.Address) {
			return fmt.Errorf("address %s is on %s already, and the host needs another address in the network: leave it out, or choose a free address", s.Address, n.Parent)
		}
	}
	return nil
}

// addresses returns the host's addresses on the link, except link-local ones.
func addresses(l plan.HostLink) []netip.Addr {
	var all []netip.Addr
	for _, p := range l.Addresses {
		if !p.Addr().IsLinkLocalUnicast() {
			all = append(all, p.Addr())
		}
	}
	return all
}

// Complete returns the network with the parent's MTU as default, and for each
// subnet the address of the LAN's router and of the host's shim.
func (b SubLinks) Complete(n model.Network, f plan.Facts) model.Network {
	parent, known := f.Links[n.Parent]
	if !known {
		return n
	}
	n.Parent = parent.Name
	if n.MTU == 0 {
		n.MTU = parent.MTU
	}
	n.ParentAddresses = addresses(parent)
	n.Subnets = slices.Clone(n.Subnets)
	for i, s := range n.Subnets {
		n.Subnets[i] = b.completeSubnet(s, n.ParentAddresses)
	}
	return n
}

// completeSubnet chooses the first usable address of the subnet as that of the
// LAN's router, unless the host has it, and the last free address of the range for
// the host.
func (b SubLinks) completeSubnet(s model.Subnet, host []netip.Addr) model.Subnet {
	first := s.Prefix.Masked().Addr().Next()
	if b.Switched && !s.Gateway.IsValid() && !slices.Contains(host, first) && first != s.Address {
		s.Gateway = first
	}
	switch {
	case s.Address.IsValid():
	case b.Shim:
		s.Address = lastFree(s, host)
	default:
		s.Address = s.Gateway // the host has no address, so none is reserved for it
	}
	return s
}

// lastFree returns the last address of the subnet's range that neither the host nor
// the gateway has. The last 128 addresses of an IPv6 subnet are reserved for anycast
// (RFC 2526).
func lastFree(s model.Subnet, host []netip.Addr) netip.Addr {
	pool := s.Pool()
	bytes := pool.Addr().AsSlice()
	for bit := pool.Bits(); bit < pool.Addr().BitLen(); bit++ {
		if anycast := pool.Addr().BitLen() - 8; pool.Addr().Is6() && bit == anycast {
			continue
		}
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	for a := last; pool.Contains(a); a = a.Prev() {
		if s.Usable(a) && a != s.Gateway && !slices.Contains(host, a) {
			return a
		}
	}
	return netip.Addr{}
}

// Endpoint plans the sub-link of one sandbox and, if the network has a shim, the
// shim and its routes to the sandbox.
func (b SubLinks) Endpoint(n model.Network, e model.Endpoint) plan.Plan {
	link := plan.SubLink{Netns: e.Sandbox, Name: e.InterfaceName(), Kind: b.Kind, Mode: string(b.Mode),
		Parent: n.Parent, MTU: n.LinkMTU(), Owner: e.Name, IPv6: EndpointIPv6(n, e)}
	p := Sandbox(n, e)
	if n.VLAN != 0 {
		vlan := plan.SubLink{Name: VLANLink(n.Parent, n.VLAN), Kind: plan.VLAN, Parent: n.Parent, VLAN: n.VLAN,
			MTU:   n.LinkMTU(),
			Owner: fmt.Sprintf("%s.%d", n.Parent, n.VLAN), Quiet: true,
			IPv6: plan.IPv6Fixed} // shared by networks with and without IPv6
		link.Parent = vlan.Name
		p = append(p, vlan)
	}
	if b.OwnMAC {
		link.MAC = b.mac(n, e)
	}
	p = append(p, link)
	if b.Switched {
		p = append(p, Addressing(n, e)...)
	} else {
		p = append(p, onLink(n, e)...)
	}
	return append(p, b.shim(n, e, link.Parent)...)
}

// mac returns the sub-link's hardware address. In a network without subnets the IP
// address may come from a DHCP server, which identifies its client by hardware
// address. So there the hardware address must not be derived from the IP address.
func (b SubLinks) mac(n model.Network, e model.Endpoint) string {
	if len(n.Subnets) == 0 {
		return e.MAC
	}
	return EndpointMAC(e)
}

// onLink plans the endpoint's addresses and a default route without a next hop: the
// host routes all packets that leave the sandbox.
func onLink(n model.Network, e model.Endpoint) plan.Plan {
	var p plan.Plan
	add := func(prefix netip.Prefix) {
		p = append(p, plan.Address{Netns: e.Sandbox, Link: e.InterfaceName(), Prefix: prefix})
		if !e.NoDefault {
			p = append(p, plan.Route{Netns: e.Sandbox, To: Default(prefix.Addr()), Link: e.InterfaceName()})
		}
	}
	for _, s := range n.Subnets {
		if addr, ok := e.Address(s.Prefix.Addr().Is4()); ok {
			add(netip.PrefixFrom(addr, s.Prefix.Bits()))
		}
	}
	for _, prefix := range e.Prefixes {
		add(prefix)
	}
	return append(p, Extras(e)...)
}
