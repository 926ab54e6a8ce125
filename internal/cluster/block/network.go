package block

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// The numbers of overlays that clusters use. Lower ones are left to networks that users number.
const (
	firstVNI = 1 << 20
	lastVNI  = 1<<24 - 1
)

// The errors of Create and Remove that callers act on.
var (
	// ErrExists is the error of Create for a name or a subnet that the cluster has already.
	ErrExists = errors.New("the cluster has it already")
	// ErrInvalid is the error of Create for settings that a cluster's network cannot have.
	ErrInvalid = errors.New("the settings are not valid")
)

// invalidError is an error that is ErrInvalid.
type invalidError struct{ error }

// Is implements the interface of errors.Is.
func (invalidError) Is(target error) bool { return target == ErrInvalid }

// Create adds a network to the cluster. An overlay gets its number in the same transaction. A
// block size of 0 means that of DefaultBits. It returns ErrExists, ErrInvalid or ErrBusy
// (errors.Is), or the error of the store. The snapshot may be old, but subnets are compared with
// its networks only: of two networks with the same addresses that nodes create at the same time,
// each host uses the one that it sees first.
func Create(ctx context.Context, store kv.Committer, s kv.Snapshot, spec model.Network, blockBits []int) error {
	n, err := newNetwork(s, spec, blockBits)
	if err == nil {
		err = create(ctx, store, s, n)
	}
	if err != nil {
		return fmt.Errorf("create network %s of the cluster: %w", spec.Name, err)
	}
	return nil
}

// newNetwork returns the record of a network.
func newNetwork(s kv.Snapshot, spec model.Network, bits []int) (record.Network, error) {
	n := record.Network{Spec: spec, Direct: spec.Traits().Remote}
	if spec.Overlay.Encrypt && spec.Overlay.Port == 0 {
		n.Spec.Overlay.Port = freePort(s)
	}
	for i, sub := range spec.Subnets {
		size := DefaultBits(sub.Prefix)
		if i < len(bits) && bits[i] != 0 {
			size = bits[i]
		}
		n.BlockBits = append(n.BlockBits, size)
	}
	if err := n.Validate(); err != nil {
		return n, invalidError{err}
	}
	return n, errors.Join(checkOverlap(s, spec), checkVirtual(s, spec))
}

// checkVirtual returns ErrExists if a virtual address of the cluster is in a subnet.
func checkVirtual(s kv.Snapshot, spec model.Network) error {
	for _, v := range record.Each[record.Address](s, record.Addresses) {
		for _, a := range spec.Subnets {
			if a.Prefix.Contains(v.Prefix.Addr()) {
				return fmt.Errorf("subnet %s contains the virtual address %s: %w: choose another", a.Prefix,
					v.Prefix.Addr(), ErrExists)
			}
		}
	}
	return nil
}

// freePort returns the first UDP port from WireGuard's on that no encrypted overlay of the snapshot has:
// on each host, each has a socket of its own.
func freePort(s kv.Snapshot) uint16 {
	used := map[uint16]bool{}
	for _, n := range record.Each[record.Network](s, record.Networks) {
		if n.Spec.Overlay.Encrypt {
			used[n.Spec.Overlay.WirePort()] = true
		}
	}
	port := uint16(model.PortWireGuard)
	for used[port] {
		port++
	}
	return port
}

// checkOverlap returns ErrExists if another network of the cluster has addresses of a subnet.
func checkOverlap(s kv.Snapshot, spec model.Network) error {
	for _, o := range record.Each[record.Network](s, record.Networks) {
		if o.Spec.Name == spec.Name {
			continue
		}
		for _, a := range spec.Subnets {
			overlaps := func(b model.Subnet) bool { return a.Prefix.Overlaps(b.Prefix) }
			if i := slices.IndexFunc(o.Spec.Subnets, overlaps); i >= 0 {
				return fmt.Errorf("subnet %s overlaps %s of network %s: %w: choose another", a.Prefix,
					o.Spec.Subnets[i].Prefix, o.Spec.Name, ErrExists)
			}
		}
	}
	return nil
}

// create commits the record, with a number for an overlay.
func create(ctx context.Context, store kv.Committer, s kv.Snapshot, n record.Network) error {
	chosen := n.Spec.Overlay.VNI != 0
	for tries := range Attempts {
		if tries > 0 {
			if err := backOff(ctx, tries); err != nil {
				return err
			}
		}
		if !n.Direct && n.Spec.Overlay.VNI == 0 {
			n.Spec.Overlay.VNI = freeNumber(s)
		}
		t := creation(n)
		result, _, err := kv.Repeat(ctx, store, t)
		switch {
		case err != nil:
			return err
		case result.Committed || slices.ContainsFunc(result.Current, same(t)):
			return nil
		case chosen || slices.ContainsFunc(result.Current, named(record.Key(record.Networks, n.Spec.Name))):
			return ErrExists
		}
		n.Spec.Overlay.VNI = 0 // another network has got the number meanwhile
	}
	return ErrBusy
}

// creation returns the transaction that creates the network.
func creation(n record.Network) kv.Txn {
	t := kv.Txn{Then: []kv.Change{{Key: record.Key(record.Networks, n.Spec.Name), Value: record.Encode(n)}}}
	if vni := n.Spec.Overlay.VNI; vni != 0 {
		t.Then = append(t.Then, kv.Change{Key: numberKey(vni), Value: record.Encode(n.Spec.Name)})
	}
	for _, c := range t.Then {
		t.If = append(t.If, kv.Condition{Key: c.Key})
	}
	return t
}

// same reports whether an entry is the record that the transaction was to create. The answer to an
// earlier attempt was lost then.
func same(t kv.Txn) func(kv.Entry) bool {
	return func(e kv.Entry) bool { return e.Key == t.Then[0].Key && bytes.Equal(e.Value, t.Then[0].Value) }
}

func named(key string) func(kv.Entry) bool { return func(e kv.Entry) bool { return e.Key == key } }

// freeNumber returns a number that no overlay of the snapshot has. It is drawn at random, because
// other nodes look for one too.
func freeNumber(s kv.Snapshot) uint32 {
	for {
		vni := firstVNI + rand.N[uint32](lastVNI-firstVNI+1)
		if _, used := s.Get(numberKey(vni)); !used {
			return vni
		}
	}
}

func numberKey(vni uint32) string { return record.Key(record.VNIs, strconv.Itoa(int(vni))) }

// Remove deletes a network with its number and its blocks. A host on which a sandbox is attached to
// it keeps it until that is detached. It returns ErrGone or ErrBusy (errors.Is), or the error of the
// store.
func Remove(ctx context.Context, store kv.Committer, s kv.Snapshot, name string) error {
	key := record.Key(record.Networks, name)
	e, ok := s.Get(key)
	var err error
	if !ok { // another node may have created it a moment ago
		var have map[string]kv.Entry
		have, err = kv.Read(ctx, store, key)
		e, ok = have[key]
	}
	switch {
	case ok:
		err = remove(ctx, store, e)
	case err == nil:
		err = ErrGone
	}
	if err == nil {
		err = free(ctx, store, s, name)
	}
	if err != nil {
		return fmt.Errorf("remove network %s of the cluster: %w", name, err)
	}
	return nil
}

// remove deletes the record and the number of a network.
func remove(ctx context.Context, store kv.Committer, e kv.Entry) error {
	for tries := range Attempts {
		if tries > 0 {
			if err := backOff(ctx, tries); err != nil {
				return err
			}
		}
		n, _ := record.Decode[record.Network](e) // the number of a record that is not valid is not known
		t := kv.Txn{If: []kv.Condition{e.Unchanged()}, Then: []kv.Change{{Key: e.Key}}}
		if vni := n.Spec.Overlay.VNI; vni != 0 {
			t.Then = append(t.Then, kv.Change{Key: numberKey(vni)})
		}
		result, _, err := kv.Repeat(ctx, store, t)
		switch {
		case err != nil:
			return err
		case result.Committed || len(result.Current) == 0: // another node has removed it
			return nil
		}
		e = result.Current[0]
	}
	return ErrBusy
}
