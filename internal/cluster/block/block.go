// Package block allocates what the nodes of a cluster must not share: the names and numbers of
// networks, and blocks of addresses, from which each node leases on its own. It does not lease
// single addresses: package ipam does.
//
// Theory of operation. A block is a key with the id of its node. A claim is one transaction: the
// node and the network exist, and the key does not. So two nodes never get the same block, and a
// node that was removed gets none. Each claim raises the network's sequence number, which the
// block records: a block that was freed and claimed again differs from the earlier one.
//
//	If    nodes/ID and nets/NET have the revisions that were read, blocks/NET/PREFIX is absent
//	Then  nets/NET with Sequence+1, blocks/NET/PREFIX = {node, sequence}
//
// A transaction that another one has outrun is repeated with the records that the store returned.
// Of those that compete at least one is committed, so with Attempts nodes all get their block. If
// an answer was lost, the repetition finds the block with its own sequence number.
package block

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// Attempts is how many times a claim is tried before it returns ErrBusy.
const Attempts = 64

// The errors that callers act on.
var (
	// ErrBusy is the error of a claim that others have outrun too often. It can be repeated.
	ErrBusy = errors.New("other nodes change the network at the same time: try again")
	// ErrFull is the error of a claim in a subnet without a free block.
	ErrFull = errors.New("all its blocks belong to nodes: use a smaller --block-size or a larger subnet for a new " +
		"network, or remove nodes that no longer exist with `fairlead cluster rm`")
	// ErrGone is the error of a claim for a node or a network that the cluster does not have.
	ErrGone = errors.New("the cluster does not have it")
	// ErrDrained is the error of a claim for a node that is drained.
	ErrDrained = errors.New("this host is drained: use another host, or end the drain with `fairlead cluster drain " +
		"--undo` and the name of this host")
)

// Own returns the blocks of a node in a network, in the order of their claims. It ignores records
// that cannot be read.
func Own(s kv.Snapshot, network, node string) []netip.Prefix {
	type claimed struct {
		prefix   netip.Prefix
		sequence int64
	}
	var all []claimed
	id := []byte(node) // JSON does not escape it
	for e := range s.Under(record.Key(record.Blocks, network) + "/") {
		if !bytes.Contains(e.Value, id) {
			continue // most are other nodes'
		}
		prefix, b, err := Read(e)
		if err == nil && b.Node == node {
			all = append(all, claimed{prefix, b.Sequence})
		}
	}
	slices.SortFunc(all, func(a, b claimed) int { return int(a.sequence - b.sequence) })
	var prefixes []netip.Prefix
	for _, c := range all {
		prefixes = append(prefixes, c.prefix)
	}
	return prefixes
}

// Read returns the block of an entry.
func Read(e kv.Entry) (netip.Prefix, record.Block, error) {
	b, err := record.Decode[record.Block](e)
	if err != nil {
		return netip.Prefix{}, b, err
	}
	names := record.Names(record.Blocks, e.Key, 2)
	prefix, err := netip.ParsePrefix(names[len(names)-1])
	if err != nil || prefix != prefix.Masked() {
		return prefix, b, fmt.Errorf("read record %s: its name is no block of addresses", e.Key)
	}
	return prefix, b, nil
}

// key returns the key of a block.
func key(network string, prefix netip.Prefix) string {
	return record.Key(record.Blocks, network, prefix.String())
}

// Claim claims a block of a subnet of the network for the node. If the snapshot is old, each block
// that was claimed meanwhile can cost an attempt. It returns ErrBusy, ErrFull, ErrGone or ErrDrained
// (errors.Is), or the error of the store.
func Claim(ctx context.Context, store kv.Committer, s kv.Snapshot, network, node string,
	subnet int) (netip.Prefix, error) {
	c := claim{store: store, network: network, node: node, subnet: subnet, taken: map[netip.Prefix]bool{}}
	for e := range s.Under(record.Key(record.Blocks, network) + "/") {
		if prefix, _, err := Read(e); err == nil {
			c.taken[prefix] = true
		}
	}
	c.nodeEntry, _ = s.Get(record.Key(record.Nodes, node))
	c.networkEntry, _ = s.Get(record.Key(record.Networks, network))
	prefix, err := c.run(ctx)
	if err != nil {
		return prefix, fmt.Errorf("claim addresses of network %s: %w", network, err)
	}
	return prefix, nil
}

// claim is one claim in progress.
type claim struct {
	store         kv.Committer
	network, node string
	subnet        int
	// nodeEntry and networkEntry are the newest known records.
	nodeEntry, networkEntry kv.Entry
	// taken are the blocks that are known to belong to nodes.
	taken map[netip.Prefix]bool
	// tried is the block of the last attempt, with its sequence number.
	tried    netip.Prefix
	sequence int64
}

func (c *claim) run(ctx context.Context) (netip.Prefix, error) {
	for n := range Attempts {
		if n > 0 {
			if err := backOff(ctx, n); err != nil {
				return netip.Prefix{}, err
			}
		}
		t, err := c.transaction()
		if err != nil {
			return netip.Prefix{}, err
		}
		result, lost, err := kv.Repeat(ctx, c.store, t)
		switch {
		case err != nil:
			return netip.Prefix{}, err
		case result.Committed || lost && c.won(result.Current):
			return c.tried, nil
		}
		c.learn(result.Current)
	}
	return netip.Prefix{}, ErrBusy
}

// transaction returns the next attempt.
func (c *claim) transaction() (kv.Txn, error) {
	n, err := c.records()
	if err != nil {
		return kv.Txn{}, err
	}
	if c.tried, err = c.free(n); err != nil {
		return kv.Txn{}, err
	}
	n.Sequence++
	c.sequence = n.Sequence
	block := record.Block{Node: c.node, Sequence: c.sequence}
	return kv.Txn{
		If: []kv.Condition{c.nodeEntry.Unchanged(), c.networkEntry.Unchanged(), {Key: key(c.network, c.tried)}},
		Then: []kv.Change{{Key: record.Key(record.Networks, c.network), Value: record.Encode(n)},
			{Key: key(c.network, c.tried), Value: record.Encode(block)}},
	}, nil
}

// records returns the network, if the node may claim a block of it.
func (c *claim) records() (record.Network, error) {
	if c.nodeEntry.Value == nil {
		return record.Network{}, fmt.Errorf("node %s: %w", c.node, ErrGone)
	}
	node, err := record.Decode[record.Node](c.nodeEntry)
	switch {
	case err != nil:
		return record.Network{}, err
	case node.Drained:
		return record.Network{}, ErrDrained
	case c.networkEntry.Value == nil:
		return record.Network{}, ErrGone
	}
	n, err := record.Decode[record.Network](c.networkEntry)
	if err == nil && c.subnet >= len(n.Spec.Subnets) {
		err = fmt.Errorf("read record %s: it has no subnet %d", c.networkEntry.Key, c.subnet+1)
	}
	return n, err
}

// free returns the first block that is not known to belong to a node. Each node begins at
// another one, so that nodes rarely compete for a block.
func (c *claim) free(n record.Network) (netip.Prefix, error) {
	subnet := n.Spec.Subnets[c.subnet].Prefix.Masked()
	bits := n.BlockBits[c.subnet]
	h := fnv.New64a()
	h.Write([]byte(c.node))
	first := h.Sum64()
	all := count(subnet, bits)
	for i := range all {
		if b := nth(subnet, bits, (first+i)%all); !c.taken[b] {
			return b, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("subnet %s: %w", subnet, ErrFull)
}

// won reports whether an earlier attempt, whose answer was lost, was committed.
func (c *claim) won(current []kv.Entry) bool {
	i := slices.IndexFunc(current, func(e kv.Entry) bool { return e.Key == key(c.network, c.tried) })
	if i < 0 {
		return false
	}
	_, b, err := Read(current[i])
	return err == nil && b == record.Block{Node: c.node, Sequence: c.sequence}
}

// learn takes over the records that made an attempt fail.
func (c *claim) learn(current []kv.Entry) {
	c.nodeEntry, c.networkEntry = kv.Entry{}, kv.Entry{}
	for _, e := range current {
		switch e.Key {
		case record.Key(record.Nodes, c.node):
			c.nodeEntry = e
		case record.Key(record.Networks, c.network):
			c.networkEntry = e
		default:
			c.taken[c.tried] = true
		}
	}
}

// free deletes the blocks of a network, and the records of addresses outside blocks.
func free(ctx context.Context, store kv.Committer, s kv.Snapshot, network string) error {
	for _, prefix := range []string{record.Blocks, record.Moves} {
		for e := range s.Under(record.Key(prefix, network) + "/") {
			if err := freeOne(ctx, store, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// freeOne deletes a record. If it has changed meanwhile, it is another one, and stays.
func freeOne(ctx context.Context, store kv.Committer, e kv.Entry) error {
	_, _, err := kv.Repeat(ctx, store, kv.Txn{If: []kv.Condition{e.Unchanged()}, Then: []kv.Change{{Key: e.Key}}})
	return err
}

// backOff waits for a random time before attempt n, so that nodes that compete do not repeat in
// step.
func backOff(ctx context.Context, n int) error {
	select {
	case <-time.After(rand.N(min(time.Duration(n)*2*time.Millisecond, 100*time.Millisecond))):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", kv.ErrUnavailable, ctx.Err())
	}
}
