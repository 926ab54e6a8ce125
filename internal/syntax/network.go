package syntax

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// Drivers returns the names of the drivers that connect a sandbox to a network.
func Drivers() []string {
	var names []string
	for _, d := range paths.Drivers() {
		if !d.Name().Traits().NoLink {
			names = append(names, string(d.Name()))
		}
	}
	return names
}

// Driver parses the name of a driver that Drivers returns.
func Driver(text string) (model.Driver, error) {
	if !slices.Contains(Drivers(), text) {
		return "", fmt.Errorf("driver %q: want one of %s", text, strings.Join(Drivers(), ", "))
	}
	return model.Driver(text), nil
}

// Outbound parses what translates the outbound connections of a network.
func Outbound(n *model.Network, text string) error {
	switch text {
	case "", "nft":
		n.Outbound = model.OutboundNFT
	case string(model.OutboundEBPF), string(model.OutboundAuto):
		n.Outbound = model.Outbound(text)
	default:
		return fmt.Errorf("outbound %q: want nft, ebpf or auto", text)
	}
	return nil
}

// Subnet parses an address range and adds it to the network.
func Subnet(n *model.Network, text string) error {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("subnet %q: want an address and a prefix length, e.g. 172.30.0.0/24", text)
	}
	n.Subnets = append(n.Subnets, model.Subnet{Prefix: prefix.Masked()})
	return nil
}

// SubnetGateway parses the default gateway of the sandboxes in one of the
// network's subnets.
func SubnetGateway(n *model.Network, text string) error {
	return within(n, "gateway", text, func(s *model.Subnet, a netip.Addr) { s.Gateway = a })
}

// SubnetAddress parses the host's own address in one of the network's subnets.
func SubnetAddress(n *model.Network, text string) error {
	return within(n, "address", text, func(s *model.Subnet, a netip.Addr) { s.Address = a })
}

// within parses an address and sets it in the subnet that contains it.
func within(n *model.Network, what, text string, set func(*model.Subnet, netip.Addr)) error {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("%s %q: want an IP address", what, text)
	}
	i := slices.IndexFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Contains(a) })
	if i < 0 {
		return fmt.Errorf("%s %s is in no subnet of the network: add the subnet", what, a)
	}
	set(&n.Subnets[i], a)
	return nil
}

// SubnetRange parses the part of one of the network's subnets from which addresses
// are assigned.
func SubnetRange(n *model.Network, text string) error {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("range %q: want an address and a prefix length, e.g. 172.30.0.128/25", text)
	}
	i := slices.IndexFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Contains(p.Addr()) })
	if i < 0 {
		return fmt.Errorf("range %s is in no subnet of the network: add the subnet", p)
	}
	n.Subnets[i].Range = p.Masked()
	return nil
}

// Group parses the multicast group of an overlay. "" means none.
func Group(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("group %q: want a multicast address, e.g. 239.0.0.99 or ff05::99", text)
	}
	return a, nil
}

// Peer parses a host of an overlay, with or without its ranges of the subnets:
// 192.0.2.2=10.9.0.128/25,fd00:9::200/120.
func Peer(text string) (model.Peer, error) {
	bad := fmt.Errorf("peer %q: want an address, or an address and the ranges from which that host assigns "+
		"addresses, e.g. 192.0.2.2=10.9.0.128/25", text)
	address, ranges, ranged := strings.Cut(text, "=")
	a, err := netip.ParseAddr(address)
	if err != nil {
		return model.Peer{}, bad
	}
	peer := model.Peer{Address: a}
	if !ranged {
		return peer, nil
	}
	for r := range strings.SplitSeq(ranges, ",") {
		p, err := netip.ParsePrefix(r)
		if err != nil {
			return peer, bad
		}
		peer.Ranges = append(peer.Ranges, p.Masked())
	}
	return peer, nil
}

// FormatPeer writes a peer as Peer reads it.
func FormatPeer(p model.Peer) string {
	var ranges []string
	for _, r := range p.Ranges {
		ranges = append(ranges, r.String())
	}
	if len(ranges) == 0 {
		return p.Address.String()
	}
	return p.Address.String() + "=" + strings.Join(ranges, ",")
}
