package networks

import (
	"context"
	"errors"
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// CreateNetwork adds a network to the cluster. Each node claims a block of it and then has it. The
// block sizes are the prefix lengths of blocks, in the order of the subnets; they may be omitted.
// Returns a Fault: NotFound if the host belongs to no cluster, Conflict if the cluster has the
// network, Invalid for settings that a cluster's network cannot have.
func (n *Networks) CreateNetwork(ctx context.Context, spec model.Network, blockBits []int) error {
	s, err := n.current()
	if err == nil {
		spec.Origin = model.FromCluster
		err = block.Create(ctx, n.cfg.Store, s, spec, blockBits)
	}
	return fault(err)
}

// RemoveNetwork removes a network from the cluster. A host on which sandboxes are attached to it
// keeps it until they are detached. Returns a Fault with code NotFound if there is no such network.
func (n *Networks) RemoveNetwork(ctx context.Context, name string) error {
	s, err := n.current()
	if err == nil {
		err = block.Remove(ctx, n.cfg.Store, s, name)
	}
	return fault(err)
}

// HasNetwork reports whether the cluster has a network with this name, according to the newest
// snapshot.
func (n *Networks) HasNetwork(name string) bool {
	s, err := n.current()
	if err != nil {
		return false
	}
	_, has := s.Get(record.Key(record.Networks, name))
	return has
}

// Holder returns the node that has an address, by its block or because it has moved there. Returns a Fault with
// code NotFound if there is no cluster, or no other node has it.
func (n *Networks) Holder(a netip.Addr) (id, name string, err error) {
	s, err := n.current()
	if err != nil {
		return "", "", err
	}
	for e, m := range record.Each[record.Move](s, record.Moves) {
		if names := record.Names(record.Moves, e.Key, 2); names[len(names)-1] == a.String() {
			id = m.Node
		}
	}
	for e := range s.Under(record.Blocks) {
		if p, b, err := block.Read(e); id == "" && err == nil && p.Contains(a) {
			id = b.Node
		}
	}
	node, known, err := record.Get[record.Node](s, record.Key(record.Nodes, id))
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil || !known || id == n.self.Node {
		return "", "", api.Faultf(api.NotFound, "no other node of the cluster has the address %s", a)
	}
	return id, node.Name, nil
}

func (n *Networks) current() (kv.Snapshot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.snapshot == nil {
		return nil, member.NoRecords()
	}
	return n.snapshot, nil
}

// fault returns the error with the code that the API has for it.
func fault(err error) error {
	for code, causes := range map[api.Code][]error{
		api.Conflict: {block.ErrExists, block.ErrBusy}, api.Invalid: {block.ErrInvalid}, api.NotFound: {block.ErrGone},
	} {
		for _, cause := range causes {
			if errors.Is(err, cause) {
				return &api.Fault{Code: code, Err: err}
			}
		}
	}
	return err
}
