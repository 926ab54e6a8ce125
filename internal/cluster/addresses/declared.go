package addresses

import (
	"context"
	"fmt"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// Apply adds the addresses of a Spec that the cluster does not have. In a dry run it only returns the changes.
// Addresses that files no longer declare stay, because files of other hosts can declare them. If addresses
// have mistakes, the Fault wraps api.Mistakes, and nothing is added.
func (a *Addresses) Apply(ctx context.Context, declared []api.ClusterAddressSpec, dry bool) ([]api.Change, error) {
	s, _, err := a.latest.Current()
	if err != nil {
		return nil, &api.Fault{Code: api.CodeOf(err), Err: api.Mistakes{{At: "addresses[0]",
			Text: "virtual addresses belong to a cluster, and " + err.Error()}}}
	}
	var changes []api.Change
	var mistakes api.Mistakes
	code := api.Invalid
	for i, spec := range declared {
		missing, err := check(s, spec)
		if err != nil {
			mistakes = append(mistakes, api.Mistake{At: fmt.Sprintf("addresses[%d]", i), Text: err.Error()})
			code = api.CodeOf(err)
		}
		if missing {
			changes = append(changes, api.Change{Action: api.Created, Kind: "address", Name: spec.Address.String()})
		}
	}
	if len(mistakes) > 0 {
		return nil, &api.Fault{Code: code, Err: mistakes}
	}
	for _, spec := range declared {
		if dry {
			break
		}
		if _, err := a.AddAddress(ctx, spec); err != nil {
			return changes, err
		}
	}
	return changes, nil
}

// check reports whether an address is missing in the snapshot, or returns why it cannot be added.
func check(s kv.Snapshot, spec api.ClusterAddressSpec) (missing bool, err error) {
	want, err := newRecord(s, spec)
	if err != nil {
		return false, err
	}
	have, exists, err := record.Get[record.Address](s, record.Key(record.Addresses, want.Prefix.Addr().String()))
	if !exists || err != nil {
		return !exists, err
	}
	return false, sameSettings(s, have, want)
}
