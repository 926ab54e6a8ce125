package text

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/paths"
)

// Drivers are the drivers that attach a sandbox to something.
func Drivers() []string {
	var names []string
	for _, d := range paths.Drivers() {
		if d.Name() != model.DriverNone && d.Name() != model.DriverHost {
			names = append(names, string(d.Name()))
		}
	}
	return names
}

// Driver reads the name of a driver that attaches.
func Driver(text string) (model.Driver, error) {
	if !slices.Contains(Drivers(), text) {
		return "", fmt.Errorf("driver %q: want one of %s", text, strings.Join(Drivers(), ", "))
	}
	return model.Driver(text), nil
}

// Subnet reads the address range of a network.
func Subnet(n *model.Network, text string) error {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Errorf("subnet %q: want an address and a prefix length, e.g. 172.30.0.0/24", text)
	}
	n.Subnets = append(n.Subnets, model.Subnet{Prefix: prefix.Masked()})
	return nil
}

// SubnetGateway reads the default gateway of the sandboxes in one of the
// network's subnets.
func SubnetGateway(n *model.Network, text string) error {
	return within(n, "gateway", text, func(s *model.Subnet, a netip.Addr) { s.Gateway = a })
}

// SubnetAddress reads the host's own address in one of the network's subnets.
func SubnetAddress(n *model.Network, text string) error {
	return within(n, "address", text, func(s *model.Subnet, a netip.Addr) { s.Address = a })
}

// within gives an address to the subnet that it is in.
func within(n *model.Network, what, text string, set func(*model.Subnet, netip.Addr)) error {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return fmt.Errorf("%s %q: want an address", what, text)
	}
	i := slices.IndexFunc(n.Subnets, func(s model.Subnet) bool { return s.Prefix.Contains(a) })
	if i < 0 {
		return fmt.Errorf("%s %s is in no subnet of the network: add the subnet", what, a)
	}
	set(&n.Subnets[i], a)
	return nil
}

// SubnetRange reads the part of one of the network's subnets that addresses
// are leased from.
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

// Group reads the multicast group of an overlay; nothing is none.
func Group(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("group %q: want a multicast address", text)
	}
	return a, nil
}

// Peer reads a host of an overlay, with its parts of the subnets or without:
// 192.0.2.2=10.9.0.128/25,fd00:9::200/120.
func Peer(text string) (model.Peer, error) {
	bad := fmt.Errorf("peer %q: want an address, or an address and the ranges that the host leases from, e.g. 192.0.2.2=10.9.0.128/25", text)
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
