package record

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/expression"
	"fairlead/internal/model"
)

// Everyone who can write to the store can write each record, so Decode returns only records that are valid on
// their own. Validate has the same rules for the commands that write them.

// MinHold and MaxHold limit the hold time of virtual addresses. With MaxHold, the 100 ms that a candidate adds
// still cover clocks of which one runs 5 % fast and one 5 % slow.
const (
	MinHold = 200 * time.Millisecond
	MaxHold = 10 * time.Second
)

// The limits of blocks.
const (
	// MinHostBits leaves room for the host's own address and for sandboxes.
	MinHostBits = 2
	// maxHostBits limits what a network has on each host for each block.
	maxHostBits = 10
)

// validated is a record that has rules.
type validated interface {
	// Validate returns an error if no node can use the record.
	Validate() error
	// name returns what the key of the record has after its prefix.
	name() string
}

// check returns an error if a record is not valid, or is not the one of its key. The key is not checked if it is
// empty.
func check(key, prefix string, r validated) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if key != "" && key != Key(prefix, r.name()) {
		return fmt.Errorf("it has the name %q", r.name())
	}
	return nil
}

// checkRecord checks the records that have rules.
func checkRecord(key string, v any) error {
	switch r := v.(type) {
	case Service:
		return check(key, Services, r)
	case Network:
		return check(key, Networks, r)
	case Address:
		return check(key, Addresses, r)
	case BGPPeer:
		return check(key, BGPPeers, r)
	}
	return nil
}

func (r Service) name() string { return r.Spec.Name }
func (n Network) name() string { return n.Spec.Name }
func (a Address) name() string { return a.Prefix.Addr().String() }
func (p BGPPeer) name() string { return p.Address.String() }

// Validate returns an error if the cluster cannot have the service. A node can have it without a virtual address on
// a link, and real servers on other hosts are reached via networks of the cluster.
func (r Service) Validate() error {
	v := r.Spec
	v.Origin = model.FromCluster
	if err := sizesOf(v.Check); err != nil {
		return err
	}
	if err := v.Validate(); err != nil {
		return err
	}
	switch {
	case !v.Plane.Traits().AtLinks:
		return fmt.Errorf("plane %s: want ebpf, with which a host that does not have the address does not answer for it",
			v.Plane)
	case v.Interface != "":
		return errors.New("interface: each node would add the address to it: omit it, and set the address on one node at a " +
			"time")
	case v.NoIngress:
		return errors.New("noIngress: list the nodes that accept packets as ingress")
	case v.Check.Type == model.CheckDocker:
		return errors.New("check docker: other nodes cannot see a container's health check: want another check")
	}
	switch v.Forward {
	case model.ForwardDirect:
	case model.ForwardNAT:
		if v.SourceNAT != model.SourceNATMasqueraded {
			return errors.New("forward nat: the answers of real servers on other nodes would not return through the node " +
				"that the client has dialled: want forward direct, or source NAT masqueraded, with which real servers see " +
				"that node instead of the client")
		}
	default:
		return fmt.Errorf("forward %s: sandboxes cannot receive such packets from other nodes: want direct, or nat with "+
			"source NAT masqueraded", v.Forward)
	}
	for _, s := range v.Reals {
		switch {
		case s.State != model.RealUp:
			return fmt.Errorf("real server %s: state %s: drain it with `fairlead service drain`", s, s.State)
		case !s.Select.IsZero() && s.Select.Network == "":
			return fmt.Errorf("real server %s: its selector names no network of the cluster: add network=NAME", s)
		}
	}
	return nil
}

// sizesOf returns an error if the regular expressions of a check exceed the limits of package expression: one of 15 kB
// can need 400 MB when it is compiled, on each node.
func sizesOf(c model.Check) error {
	for name, text := range map[string]string{"body": c.Body, "expect": c.Expect} {
		if _, err := expression.Size(text); err != nil {
			return fmt.Errorf("check: %s: %w", name, err)
		}
	}
	return nil
}

// Validate returns an error if the cluster cannot have the network.
func (n Network) Validate() error {
	spec, t := n.Spec, n.Spec.Traits()
	if err := model.ValidName(spec.Name); err != nil {
		return err
	}
	switch {
	case !t.Overlay && !t.Remote:
		return fmt.Errorf("driver %s: want %s, which connect hosts", spec.Driver,
			model.OneOf(model.Drivers(func(t model.Traits) bool { return t.Overlay || t.Remote })))
	case n.Direct != t.Remote:
		return fmt.Errorf("driver %s: the record has direct %t", spec.Driver, n.Direct)
	case len(spec.Subnets) == 0 || !n.Direct && (len(spec.Subnets) != 1 || !spec.Subnets[0].Prefix.Addr().Is4()):
		return errors.New("want a subnet, e.g. 10.9.0.0/16, and with driver vxlan only one, of IPv4")
	case len(spec.Overlay.Peers) > 0 || spec.Overlay.Group.IsValid():
		return errors.New("the cluster has its list of hosts: omit peers and group")
	case n.Direct && spec.Overlay.Encrypt || spec.Overlay.KeyFile != "":
		return errors.New("each host has its own key, and only driver vxlan encrypts: omit key-file, and with other " +
			"drivers encrypt")
	}
	return errors.Join(ofOneHost(spec), n.validateSubnets())
}

// ofOneHost returns an error for settings that belong to one host. The administrator of a host allows what its
// links and routes may lose.
func ofOneHost(spec model.Network) error {
	switch {
	case spec.AllowOverlap:
		return errors.New("allow-overlap: a host would lose its neighbours or routes because of a record: choose another " +
			"subnet")
	case spec.Parent != "" || spec.Mode != "" || spec.VLAN != 0 || spec.PKey != 0:
		return errors.New("parent, mode, vlan and pkey: only networks of one host have them: omit them")
	case len(spec.FurtherRanges) > 0 || len(spec.Remote) > 0:
		return errors.New("the records of blocks have the ranges and the remote parts: omit them")
	}
	return nil
}

func (n Network) validateSubnets() error {
	if len(n.BlockBits) != len(n.Spec.Subnets) {
		return fmt.Errorf("it has %d subnets and %d block sizes", len(n.Spec.Subnets), len(n.BlockBits))
	}
	for i, sub := range n.Spec.Subnets {
		if !sub.Prefix.IsValid() {
			return fmt.Errorf("subnet %d is no address range", i+1)
		}
		if sub != (model.Subnet{Prefix: sub.Prefix}) {
			return fmt.Errorf("subnet %s: blocks determine each host's part: omit range, address and gateway", sub.Prefix)
		}
		if err := ValidBits(sub.Prefix, n.BlockBits[i]); err != nil {
			return err
		}
	}
	return nil
}

// ValidBits returns an error if blocks cannot have this prefix length in the subnet.
func ValidBits(subnet netip.Prefix, bits int) error {
	length := subnet.Addr().BitLen()
	least, most := max(subnet.Bits(), length-maxHostBits), length-MinHostBits
	if bits < least || bits > most {
		return fmt.Errorf("block size %d: want a prefix length from %d to %d in subnet %s", bits, least, most, subnet)
	}
	return nil
}

// Validate returns an error if no node could hold the address.
func (a Address) Validate() error {
	p := a.Prefix
	at := p.Addr()
	switch {
	case !p.IsValid():
		return errors.New("want an address with the length of its subnet, e.g. 192.0.2.10/24")
	case !reachable(at) || at.Is4() && at.As4()[0] >= 240:
		return errors.New("want an address that other hosts can reach")
	case a.Announce != "":
		return a.validateAnnounced()
	case p.IsSingleIP() && a.Link == "":
		return fmt.Errorf("want the length of its subnet, e.g. %s/%s, or --link", at, typical(at))
	case p.Bits() < 8:
		return errors.New("want a subnet of at most /8: hosts would lose their routes to the others")
	case at.Is4() && p.Bits() < 31 && (at == p.Masked().Addr() || at == broadcast(p)):
		return errors.New("it is the network or the broadcast address of its subnet: want a host's address")
	case at.Is6() && p.Bits() < 127 && at == p.Masked().Addr():
		return errors.New("it is the routers' anycast address of its subnet: want a host's address")
	case a.Hold < MinHold || a.Hold > MaxHold:
		return fmt.Errorf("hold time %s: want %s to %s", a.Hold, MinHold, MaxHold)
	}
	if a.Link == "" {
		return nil
	}
	return model.ValidLink(a.Link)
}

// validateAnnounced returns an error if the address could not be announced to routers.
func (a Address) validateAnnounced() error {
	switch {
	case a.Announce != AnnounceBGP:
		return errors.New("announce: want bgp")
	case !a.Prefix.IsSingleIP():
		return fmt.Errorf("want a single address to announce: %s/%d", a.Prefix.Addr(), a.Prefix.Addr().BitLen())
	case a.Hold != 0:
		return errors.New("an announced address has no holder, and so no hold time: leave --hold out")
	case a.Link != "":
		return errors.New("an announced address is on the loopback link: leave --link out")
	}
	return nil
}

// Validate returns an error if no session with the router is possible.
func (p BGPPeer) Validate() error {
	switch {
	case !reachable(p.Address):
		return errors.New("want the address of a router, e.g. 192.0.2.1")
	case p.AS == 0 || p.LocalAS == 0:
		return errors.New("want the number of the router's autonomous system and of the nodes', 1 to 4294967295; 64512 to " +
			"65534 are for private use")
	}
	return nil
}

// reachable reports whether an address can be that of a host on another link.
func reachable(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !slices.ContainsFunc([]func(netip.Addr) bool{netip.Addr.IsUnspecified,
		netip.Addr.IsMulticast, netip.Addr.IsLoopback, netip.Addr.Is4In6, netip.Addr.IsLinkLocalUnicast},
		func(is func(netip.Addr) bool) bool { return is(a) })
}

func typical(a netip.Addr) string {
	if a.Is4() {
		return "24"
	}
	return "64"
}

// broadcast returns the last address of a subnet.
func broadcast(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}
