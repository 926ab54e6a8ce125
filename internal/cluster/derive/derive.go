// Package derive turns the records of a cluster into the networks and services of one node: who has
// which addresses, by which address that host is reached, and where real servers are. It does not
// talk to the store and applies nothing.
//
// The result is a function of the snapshot and the node's id. A Deriver remembers what it read
// last, so that a change costs only what it concerns: the record of an endpoint that other nodes
// need for its name alone changes no network, and a block changes one. Its result equals that of a
// new Deriver with the same snapshot.
//
//	nodes/ID, nets/NET, keys/NET/ID, blocks/NET/PREFIX, moves/NET/ADDR, eps/NET/ID/EP ──► model.Network
//	nodes/ID, svcs/SVC, reals/SVC/ID/EP, networks ──► model.VirtualService
package derive

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/internal/recovery"
)

// Deriver derives the networks and services of a node. Only one goroutine may use it.
type Deriver struct {
	node     string
	nodes    map[string]record.Node
	networks map[string]*network
	services map[string]*service
	// problems are those of records that cannot be read, by key.
	problems map[string]string
}

// network is what is known about a network.
type network struct {
	record record.Network
	known  bool // the record exists
	blocks map[netip.Prefix]record.Block
	// moves are the nodes that have addresses outside their blocks.
	moves map[netip.Addr]string
	// endpoints are those with hardware addresses of their own, by the keys of their records. The others follow
	// from blocks and moves.
	endpoints map[string]endpoint
	// keys are the nodes' public keys, if the network is encrypted, by the nodes' ids.
	keys map[string]string
	// derived is the last result, nil if the node does not have the network. It is only valid if
	// stale is false.
	derived *model.Network
	problem error
	stale   bool
}

// endpoint is the record of an endpoint.
type endpoint struct {
	node     string
	revision int64
	record.Endpoint
}

// New returns a Deriver for the node with this id, without records.
func New(node string) *Deriver {
	return &Deriver{node: node, nodes: map[string]record.Node{}, networks: map[string]*network{},
		services: map[string]*service{}, problems: map[string]string{}}
}

// Update reads the changed records, and returns the node's networks and services in the order of
// their names, with the problems of records. A network of which the node has no block yet is left
// out, and so is a service for which the node does nothing.
func (d *Deriver) Update(u kv.Update) (networks []model.Network, services []model.VirtualService, problems []string) {
	for _, key := range u.Changed {
		e, exists := u.Snapshot.Get(key)
		e.Key = key
		delete(d.problems, key)
		var err error
		// A reader takes over a record when it has checked it, as its last step; before, it only forgets the last one.
		failed := recovery.Object("record "+key, func() { err = d.read(e, exists) })
		if err = cmp.Or(failed, err); err != nil {
			d.problems[key] = err.Error()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.networks)) {
		n := d.networks[name]
		if n.stale {
			// A result is a new value, and what it is derived from is only read. The last result stays.
			if err := recovery.Object("network "+name, func() { n.derived, n.problem = d.derive(n) }); err != nil {
				n.problem = err
			}
			n.stale = false
			d.staleServices()
		}
		if n.derived != nil {
			networks = append(networks, *n.derived)
		}
		if n.problem != nil {
			problems = append(problems, fmt.Sprintf("network %s: %v", name, n.problem))
		}
	}
	services, mistakes := d.deriveServices()
	problems = append(problems, mistakes...)
	for _, key := range slices.Sorted(maps.Keys(d.problems)) {
		problems = append(problems, d.problems[key])
	}
	return networks, services, problems
}

// readers are the functions that take over one record, or its deletion, by the prefixes of keys.
var readers = []struct {
	prefix string
	read   func(d *Deriver, e kv.Entry, exists bool) error
}{
	{record.Nodes, (*Deriver).readNode},
	{record.Networks, (*Deriver).readNetwork},
	{record.Blocks, (*Deriver).readBlock},
	{record.Moves, (*Deriver).readMove},
	{record.Endpoints, (*Deriver).readEndpoint},
	{record.Services, (*Deriver).readService},
	{record.Reals, (*Deriver).readReal},
	{record.Keys, (*Deriver).readKey},
}

// Reads reports whether the record with a key matters to a Deriver.
func Reads(key string) bool {
	for _, r := range readers {
		if strings.HasPrefix(key, r.prefix) {
			return true
		}
	}
	return false
}

// read takes over one record, or its deletion.
func (d *Deriver) read(e kv.Entry, exists bool) error {
	for _, r := range readers {
		if strings.HasPrefix(e.Key, r.prefix) {
			return r.read(d, e, exists)
		}
	}
	return nil
}

// readNode makes all networks stale if the node's addresses or its MTU differ, or the drain of this node, and all
// services if a drain does.
func (d *Deriver) readNode(e kv.Entry, exists bool) error {
	id := record.Names(record.Nodes, e.Key, 1)[0]
	var n record.Node
	var err error
	if exists {
		n, err = record.Decode[record.Node](e)
	}
	if before, was := d.nodes[id]; was != exists || before.Name != n.Name || !before.Joined.Equal(n.Joined) ||
		before.MTU != n.MTU || !slices.Equal(n.Addresses, before.Addresses) ||
		id == d.node && before.Drained != n.Drained {
		for _, n := range d.networks {
			n.stale = true
		}
		d.staleServices()
	} else if before.Drained != n.Drained {
		d.staleServices()
	}
	d.nodes[id] = n
	if !exists {
		delete(d.nodes, id)
	}
	return err
}

func (d *Deriver) readNetwork(e kv.Entry, exists bool) (err error) {
	name := record.Names(record.Networks, e.Key, 1)[0]
	n := d.network(name)
	before, was := n.record, n.known
	n.record, n.known = record.Network{}, false
	if exists {
		n.record, err = record.Decode[record.Network](e)
		n.known = err == nil
	}
	// A claim changes only the sequence number, and its block.
	if n.known != was || !n.record.Spec.Equal(before.Spec) || n.record.Direct != before.Direct ||
		!slices.Equal(n.record.BlockBits, before.BlockBits) {
		n.stale = true
	}
	return err
}

func (d *Deriver) readBlock(e kv.Entry, exists bool) error {
	names := record.Names(record.Blocks, e.Key, 2)
	n := d.network(names[0])
	n.stale = true
	if !exists {
		if p, err := netip.ParsePrefix(names[len(names)-1]); err == nil {
			delete(n.blocks, p)
		}
		return nil
	}
	p, b, err := block.Read(e)
	if err == nil {
		n.blocks[p] = b
	}
	return err
}

// readMove takes over the node that has an address outside its blocks.
func (d *Deriver) readMove(e kv.Entry, exists bool) error {
	names := record.Names(record.Moves, e.Key, 2)
	a, err := netip.ParseAddr(names[len(names)-1])
	if err != nil || len(names) != 2 || a.Zone() != "" || a.Is4In6() {
		return fmt.Errorf("read record %s: want the names of a network and an address", e.Key)
	}
	n := d.network(names[0])
	n.stale = true
	delete(n.moves, a)
	if !exists {
		return nil
	}
	m, err := record.Decode[record.Move](e)
	if err == nil {
		n.moves[a] = m.Node
	}
	return err
}

// readEndpoint makes the network stale if the endpoint has a hardware address of its own, or had one.
func (d *Deriver) readEndpoint(e kv.Entry, exists bool) error {
	names := record.Names(record.Endpoints, e.Key, 3)
	if len(names) != 3 {
		return fmt.Errorf("read record %s: want the names of a network, a node and an endpoint", e.Key)
	}
	n := d.network(names[0])
	if _, was := n.endpoints[e.Key]; was {
		n.stale = true
		delete(n.endpoints, e.Key)
	}
	if !exists {
		return nil
	}
	r, err := record.Decode[record.Endpoint](e)
	if err == nil && r.MAC != "" {
		n.endpoints[e.Key] = endpoint{names[1], e.Revision, r}
		n.stale = true
	}
	return err
}

// readKey takes over the public key of a node.
func (d *Deriver) readKey(e kv.Entry, exists bool) error {
	names := record.Names(record.Keys, e.Key, 2)
	if len(names) != 2 {
		return fmt.Errorf("read record %s: want the names of a network and a node", e.Key)
	}
	n := d.network(names[0])
	n.stale = true
	delete(n.keys, names[1])
	if !exists {
		return nil
	}
	k, err := record.Decode[record.NodeKey](e)
	if err == nil {
		err = model.ValidPublicKey(k.Public)
	}
	if err != nil {
		return fmt.Errorf("read record %s: %w", e.Key, err)
	}
	n.keys[names[1]] = k.Public
	return nil
}

// has reports whether the address is in a block of the node.
func (n *network) has(a netip.Addr, node string) bool { return n.blockHolder(a) == node }

// holder returns the node that has the address, or an empty string.
func (d *Deriver) holder(n *network, a netip.Addr) string {
	if node, moved := n.moves[a]; moved {
		if _, exists := d.nodes[node]; exists {
			return node
		}
	}
	return n.blockHolder(a)
}

// blockHolder returns the node that has the block with this address, or an empty string.
func (n *network) blockHolder(a netip.Addr) string {
	for i, s := range n.record.Spec.Subnets {
		if p, err := a.Prefix(n.record.BlockBits[i]); err == nil && s.Prefix.Contains(a) {
			return n.blocks[p].Node
		}
	}
	return ""
}

func (d *Deriver) network(name string) *network {
	n := d.networks[name]
	if n == nil {
		n = &network{blocks: map[netip.Prefix]record.Block{}, moves: map[netip.Addr]string{},
			endpoints: map[string]endpoint{}, keys: map[string]string{}}
		d.networks[name] = n
	}
	return n
}
