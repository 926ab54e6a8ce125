package addresses

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/vip"
	"fairlead/internal/model"
)

// DefaultHold is the hold time of an address for which none is given. It is longer than most elections of
// etcd's leader.
const DefaultHold = 3 * time.Second

// MinHold and MaxHold limit the hold time.
const (
	MinHold = vip.MinHold
	MaxHold = vip.MaxHold
)

// Valid returns a Fault with code Invalid if no cluster can have an address with these settings.
func Valid(spec api.ClusterAddressSpec) error { return valid(settings(spec)) }

// settings returns a record without candidates.
func settings(spec api.ClusterAddressSpec) record.Address {
	r := record.Address{Prefix: spec.Address, Link: spec.Link, Hold: spec.Hold, Announce: spec.Announce}
	if r.Hold == 0 && r.Announce == "" {
		r.Hold = DefaultHold
	}
	return r
}

// newRecord returns the record of a new address, which no node holds.
func newRecord(s kv.Snapshot, spec api.ClusterAddressSpec) (record.Address, error) {
	r := settings(spec)
	if err := valid(r); err != nil {
		return r, err
	}
	for _, name := range spec.Candidates {
		n, err := member.FindNode(s, name)
		if err != nil {
			return r, err
		}
		r.Candidates = append(r.Candidates, n.ID)
	}
	slices.Sort(r.Candidates)
	r.Candidates = slices.Compact(r.Candidates)
	return r, unused(s, r.Prefix.Addr())
}

// valid returns an error if no node could hold the address of a record.
func valid(r record.Address) error {
	p := r.Prefix
	a := p.Addr()
	invalid := func(want string) error { return api.Faultf(api.Invalid, "virtual address %s: %s", p, want) }
	switch {
	case !p.IsValid():
		return api.Faultf(api.Invalid, "virtual address: want an address with the length of its subnet, "+
			"e.g. 192.0.2.10/24")
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.Is4In6() || a.IsLinkLocalUnicast() ||
		a.Is4() && a.As4()[0] >= 240:
		return invalid("want an address that other hosts can reach")
	case r.Announce != "":
		return validAnnounced(r)
	case p.IsSingleIP() && r.Link == "":
		return invalid("want the length of its subnet, e.g. " + a.String() + "/" + typical(a) + ", or --link")
	case a.Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == broadcast(p)):
		return invalid("it is the network or the broadcast address of its subnet: want a host's address")
	case a.Is6() && p.Bits() < 127 && a == p.Masked().Addr():
		return invalid("it is the routers' anycast address of its subnet: want a host's address")
	case r.Hold < vip.MinHold || r.Hold > vip.MaxHold:
		return api.Faultf(api.Invalid, "virtual address %s: hold time %s: want %s to %s", p, r.Hold, vip.MinHold,
			vip.MaxHold)
	}
	if r.Link == "" {
		return nil
	}
	if err := model.ValidLink(r.Link); err != nil {
		return api.Faultf(api.Invalid, "virtual address %s: %w", p, err)
	}
	return nil
}

// validAnnounced returns an error if the address of a record could not be announced to routers.
func validAnnounced(r record.Address) error {
	invalid := func(want string) error { return api.Faultf(api.Invalid, "virtual address %s: %s", r.Prefix, want) }
	switch {
	case r.Announce != record.AnnounceBGP:
		return invalid("announce: want bgp")
	case !r.Prefix.IsSingleIP():
		return invalid(fmt.Sprintf("want a single address to announce: %s/%d", r.Prefix.Addr(), r.Prefix.Addr().BitLen()))
	case r.Hold != 0:
		return invalid("an announced address has no holder, and so no hold time: leave --hold out")
	case r.Link != "":
		return invalid("an announced address is on the loopback link: leave --link out")
	}
	return nil
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

// unused returns an error if the cluster uses an address for something else.
func unused(s kv.Snapshot, a netip.Addr) error {
	for e := range s.Under(record.Nodes) {
		n, err := record.Decode[record.Node](e)
		if err == nil && slices.Contains(n.Addresses, a) {
			return api.Faultf(api.Conflict, "add address %s: it is the own address of node %s: want an address that no "+
				"host has", a, n.Name)
		}
	}
	for e := range s.Under(record.Networks) {
		n, err := record.Decode[record.Network](e)
		if err != nil {
			continue
		}
		for _, subnet := range n.Spec.Subnets {
			if subnet.Prefix.Contains(a) {
				return api.Faultf(api.Conflict, "add address %s: it is in subnet %s of the cluster's network %s, whose "+
					"addresses are leased to sandboxes: want another one", a, subnet.Prefix, n.Spec.Name)
			}
		}
	}
	return nil
}

func joined(names []string) string {
	slices.Sort(names)
	return strings.Join(names, ", ")
}
