package addresses

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/vip"
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
	if err := r.Validate(); err != nil {
		return api.Faultf(api.Invalid, "virtual address %s: %w", r.Prefix, err)
	}
	return nil
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
