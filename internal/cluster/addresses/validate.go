package addresses

import (
	"net/netip"
	"slices"
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
func newRecord(s kv.Snapshot, spec api.ClusterAddressSpec) (r record.Address, err error) {
	r = settings(spec)
	if err = valid(r); err != nil {
		return r, err
	}
	if r.Candidates, err = member.FindNodes(s, spec.Candidates); err != nil {
		return r, err
	}
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
	for _, n := range record.Each[record.Node](s, record.Nodes) {
		if slices.Contains(n.Addresses, a) {
			return api.Faultf(api.Conflict, "add address %s: it is the own address of node %s: want an address that no "+
				"host has", a, n.Name)
		}
	}
	for _, n := range record.Each[record.Network](s, record.Networks) {
		for _, subnet := range n.Spec.Subnets {
			if subnet.Prefix.Contains(a) {
				return api.Faultf(api.Conflict, "add address %s: it is in subnet %s of the cluster's network %s, whose "+
					"addresses are leased to sandboxes: want another one", a, subnet.Prefix, n.Spec.Name)
			}
		}
	}
	return nil
}
