package networks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/publisher"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// publishMoves deletes the node's records of addresses that nothing uses, and puts those that are missing: the
// node of a block was removed, or the store was restored.
func (n *Networks) publishMoves(ctx context.Context, s kv.Snapshot, node string) error {
	var errs []error
	used := n.users()
	for e := range s.Under(record.Moves) {
		names := record.Names(record.Moves, e.Key, 2)
		m, err := record.Decode[record.Move](e)
		a, invalid := netip.ParseAddr(names[len(names)-1])
		if err != nil || invalid != nil || len(names) != 2 || m.Node != node {
			continue // derive reports it
		}
		if !n.isCurrent(used) {
			used = n.users()
		}
		if n.userIn(used, place{names[0], a}) == "" {
			errs = append(errs, n.release(ctx, e))
		}
	}
	attached := n.cfg.Host.Attachments()
	s, err := n.current() // it has the records of these attachments
	if err != nil {
		return errors.Join(errs...) // the node has left meanwhile
	}
	for _, p := range n.homeless(s, node, attached) {
		if err := n.home(ctx, s, node, p); err != nil {
			errs = append(errs, fmt.Errorf("address %s of network %s: %w", p.address, p.network, err))
		}
	}
	return errors.Join(errs...)
}

// home puts the record of an address that an attachment has, unless the node of the block uses the address.
func (n *Networks) home(ctx context.Context, s kv.Snapshot, node string, p place) error {
	ctx, cancel := context.WithTimeout(ctx, reserveLimit)
	defer cancel()
	h, concerned := look(s, node, p)
	if !concerned {
		return nil
	}
	if other := h.moved(); other != "" && other != node {
		if name := n.attachedAt(p); name != "" {
			return fmt.Errorf("%s has it here, and node %s says that it has it: detach one of them", name, h.names[other])
		}
		return nil // it was detached meanwhile
	}
	if err := n.ask(ctx, h, h.block(), p, 0); err != nil {
		return err
	}
	result, err := n.take(ctx, h)
	if err == nil && result.Committed {
		err = n.confirm(ctx, h, p, result.Revision)
	}
	return err
}

// homeless returns the addresses of attachments that are neither in a block of the node nor in a record of it,
// or that another node has.
func (n *Networks) homeless(s kv.Snapshot, node string, attached []api.View) (all []place) {
	ours := map[string]record.Network{}
	for _, network := range n.cfg.Host.Networks() {
		r, exists, err := record.Get[record.Network](s, record.Key(record.Networks, network.Name))
		if network.Origin == model.FromCluster && exists && err == nil {
			ours[network.Name] = r
		}
	}
	for _, v := range attached {
		r, known := ours[v.Network]
		for _, a := range v.Endpoint.Addresses {
			p := place{v.Network, a}
			key := blockKey(r, p)
			if !known || key == "" {
				continue
			}
			b, _, _ := record.Get[record.Block](s, key)
			m, _, err := record.Get[record.Move](s, moveKey(p))
			if err == nil && m.Node != node && (b.Node != node || m.Node != "") {
				all = append(all, p)
			}
		}
	}
	return all
}

// release deletes a record of the node, unless it has changed meanwhile.
func (n *Networks) release(ctx context.Context, e kv.Entry) error {
	limited, cancel := context.WithTimeout(ctx, publisher.Limit)
	defer cancel()
	t := kv.Txn{If: []kv.Condition{e.Unchanged()}, Then: []kv.Change{{Key: e.Key}}}
	if _, err := n.cfg.Store.Commit(limited, t); err != nil {
		return fmt.Errorf("release address: %w", err)
	}
	return nil
}
