package networks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/escape"
	"fairlead/internal/model"
)

// Theory of operation. An endpoint can have an address of another node's block: it has moved with its
// address. The record moves/NET/ADDR has the node, so forwarding to it is more specific than by block, and at
// most one node has the address. Two facts are not in records: addresses that the block's node has leased, and
// whether the node of an earlier record still uses it. So the node
//
//  1. asks the nodes of the earlier record and of the block whether they use the address;
//  2. puts the record, on condition that neither it nor the block nor the network has changed;
//  3. asks the node of the block again. It answers when it has the record's revision, and does not lease the
//     address from then on;
//  4. waits until this host forwards according to the record.
//
// A node that asks has the address reserved from step 2 on, and says so if it is asked itself. A node that
// does not answer may use the address: the request is refused. The record is deleted when no endpoint has the
// address, also after a daemon was killed in between.

// AddressQuestion is the kind of the question between nodes whether an address is in use.
const AddressQuestion = "address"

// The limits of a reservation, and of an answer to another node's.
const (
	reserveLimit  = 8 * time.Second
	answerLimit   = 3 * time.Second
	reserveRounds = 16
	maxUser       = 100
)

// Peers asks other nodes.
type Peers interface {
	Peer(ctx context.Context, id, kind string, question, into any) error
}

// Lessor leases addresses before they are attached.
type Lessor interface {
	// Leased reports whether an address of a network of the cluster is leased.
	Leased(network string, a netip.Addr) bool
}

// place is an address of a network.
type place struct {
	network string
	address netip.Addr
}

// holding is what the records say about an address.
type holding struct {
	// self is this node's id.
	self string
	// keys are those of this node, the network, the block and the move; entries the known ones of them.
	keys    [4]string
	entries map[string]kv.Entry
	// names are those of the nodes.
	names map[string]string
}

// The indexes of holding.keys.
const (
	ofNode = iota
	ofNetwork
	ofBlock
	ofMove
)

// block returns the node with the block of the address, if it is known.
func (h holding) block() string {
	b, _ := record.Decode[record.Block](h.entries[h.keys[ofBlock]])
	return h.known(b.Node)
}

// moved returns the node with the record of the address, if it is known.
func (h holding) moved() string {
	m, _ := record.Decode[record.Move](h.entries[h.keys[ofMove]])
	return h.known(m.Node)
}

// known returns the id if the cluster has the node. Other records are what an interrupted removal has left.
func (h holding) known(id string) string {
	if _, exists := h.names[id]; exists {
		return id
	}
	return ""
}

// home reports whether the node has the address by its block, and no other one by a record.
func (h holding) home() bool { return h.block() == h.self && h.entries[h.keys[ofMove]].Value == nil }

// LeasesOf makes the addresses of l count as used. It is called before Run.
func (n *Networks) LeasesOf(l Lessor) { n.lessor = l }

// ReserveAddresses makes this node the one that has addresses of a network, if they are in no block of it.
// Addresses of networks that are not the cluster's need nothing. The caller calls done when the addresses are
// attached, or cannot be. Returns a Fault with code Conflict if another endpoint has an address, if the node that may
// have leased it does not answer, if the cluster has the network and this host does not, or if this host may not
// lease addresses of the network at all. The last two are checked also if there are no addresses.
func (n *Networks) ReserveAddresses(ctx context.Context, network string, addrs []netip.Addr) (done func(), err error) {
	if err := cmp.Or(n.missing(network), n.mayLease(network)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, reserveLimit)
	defer cancel()
	var reserved []place
	done = func() {
		for _, p := range reserved {
			n.reserved(p, -1)
		}
		n.publisher.Wake()
	}
	for _, a := range addrs {
		p := place{network, a}
		if err := n.reserve(ctx, p); err != nil {
			done()
			return nil, fmt.Errorf("reserve address %s of network %s: %w", a, network, err)
		}
		reserved = append(reserved, p)
	}
	return done, nil
}

// mayLease returns a Fault with code Conflict if another host may act as this node, and lease the same addresses.
func (n *Networks) mayLease(network string) error {
	if n.cfg.Frozen == nil || n.host(network).Origin != model.FromCluster {
		return nil
	}
	if why := n.cfg.Frozen(); why != "" {
		return api.Faultf(api.Conflict, "lease an address of network %s: this host is frozen: %s", network, why)
	}
	return nil
}

// reserved adds to the number of reservations of an address.
func (n *Networks) reserved(p place, add int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reservations[p] += add
	if add > 0 {
		n.reservedEver++
	}
	if n.reservations[p] == 0 {
		delete(n.reservations, p)
	}
}

// reserve reserves one address. Without an error it has one more reservation.
func (n *Networks) reserve(ctx context.Context, p place) error {
	h, concerned, err := n.begin(p)
	if err != nil || !concerned {
		return err
	}
	for range reserveRounds {
		for _, other := range []string{h.moved(), h.block()} {
			if err := n.ask(ctx, h, other, p, 0); err != nil {
				return err
			}
		}
		n.reserved(p, 1)
		result, err := n.take(ctx, h)
		if err == nil && result.Committed {
			err = n.confirm(ctx, h, p, result.Revision)
		}
		if err == nil && result.Committed {
			return nil
		}
		n.reserved(p, -1)
		if err != nil {
			n.publisher.Wake() // to delete the record, if it was put
			return err
		}
		h = h.learn(result.Current)
	}
	return &api.Fault{Code: api.Conflict, Err: block.ErrBusy}
}

// begin returns what the snapshot says about an address. If the address needs no record, it is reserved at
// once, and not concerned. While it is attached, its record has been put already, and etcd may be away. Returns a
// Fault with code NotFound if there is no snapshot yet, and another host may have the address.
func (n *Networks) begin(p place) (h holding, concerned bool, err error) {
	attached := n.attachedAt(p) != ""
	foreign := !attached && foreign(n.host(p.network), p.address)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case attached:
	case n.snapshot != nil:
		h, concerned = look(n.snapshot, n.self.Node, p)
		concerned = concerned && !h.home()
	case foreign:
		return h, false, member.NoRecords()
	}
	if !concerned {
		n.reservations[p]++
		n.reservedEver++
	}
	return h, concerned, nil
}

// foreign reports whether another host of the cluster may have an address, as far as the host's network shows.
func foreign(network model.Network, a netip.Addr) bool {
	if network.Origin != model.FromCluster {
		return false
	}
	own := func(s model.Subnet) bool {
		return slices.ContainsFunc(network.Pools(s), func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return !slices.ContainsFunc(network.Subnets, own) || slices.Contains(network.Listed(), a)
}

// look returns what a snapshot says about an address. It reports false if it is not in a subnet of a network
// of the cluster: the daemon says what is wrong then.
func look(s kv.Snapshot, self string, p place) (h holding, concerned bool) {
	r, exists, err := record.Get[record.Network](s, record.Key(record.Networks, p.network))
	if err != nil || !exists {
		return h, false
	}
	key := blockKey(r, p)
	if key == "" {
		return h, false
	}
	h = holding{self: self, entries: map[string]kv.Entry{}, names: map[string]string{},
		keys: [4]string{record.Key(record.Nodes, self), record.Key(record.Networks, p.network), key, moveKey(p)}}
	for _, key := range h.keys {
		if e, exists := s.Get(key); exists {
			h.entries[key] = e
		}
	}
	for _, node := range record.Each[record.Node](s, record.Nodes) {
		h.names[node.ID] = node.Name
	}
	return h, true
}

// blockKey returns the key of the block with an address of a valid network; empty if the address is in no subnet.
func blockKey(r record.Network, p place) string {
	for i, s := range r.Spec.Subnets {
		if s.Prefix.Contains(p.address) && s.Usable(p.address) {
			of, _ := p.address.Prefix(r.BlockBits[i]) // the length is valid
			return record.Key(record.Blocks, p.network, of.String())
		}
	}
	return ""
}

func moveKey(p place) string { return record.Key(record.Moves, p.network, p.address.String()) }

// learn returns the holding with the records that made a transaction fail.
func (h holding) learn(current []kv.Entry) holding {
	h.entries = kv.ByKey(current)
	return h
}

// take puts the record of the address, or deletes it if the block is this node's.
func (n *Networks) take(ctx context.Context, h holding) (kv.Result, error) {
	node, err := record.Decode[record.Node](h.entries[h.keys[ofNode]])
	switch {
	case err != nil || h.entries[h.keys[ofNetwork]].Value == nil:
		return kv.Result{}, block.ErrGone
	case node.Drained:
		return kv.Result{}, &api.Fault{Code: api.Conflict, Err: block.ErrDrained}
	}
	var t kv.Txn
	for _, key := range h.keys {
		e := h.entries[key]
		t.If = append(t.If, kv.Condition{Key: key, Revision: e.Revision, Value: e.Value})
	}
	put := kv.Change{Key: h.keys[ofMove], Value: record.Encode(record.Move{Node: h.self})}
	if h.block() == h.self {
		put.Value = nil
	}
	t.Then = []kv.Change{put}
	result, _, err := kv.Repeat(ctx, n.cfg.Store, t)
	if err != nil {
		err = fmt.Errorf("it is in no block of this host, so other hosts must know where it is: %w: omit the address, or "+
			"try again when etcd answers", err)
	}
	return result, err
}

// confirm waits until the node of the block and this one follow the record at a revision.
func (n *Networks) confirm(ctx context.Context, h holding, p place, revision int64) error {
	if err := n.ask(ctx, h, h.block(), p, revision); err != nil {
		return err
	}
	return n.awaitApplied(ctx, revision)
}

// addressQuestion asks whether an address is in use. With a revision, it also asks the node not to lease it
// from then on: the records at this revision say that another one has it.
type addressQuestion struct {
	Network  string     `json:"network"`
	Address  netip.Addr `json:"address"`
	Revision int64      `json:"revision"`
}

// addressAnswer names what uses the address, or is empty.
type addressAnswer struct {
	UsedBy string `json:"usedBy,omitempty"`
}

// ask returns an error if another node uses the address, or does not answer.
func (n *Networks) ask(ctx context.Context, h holding, id string, p place, revision int64) error {
	if id == "" || id == h.self {
		return nil
	}
	var a addressAnswer
	err := n.cfg.Peers.Peer(ctx, id, AddressQuestion, addressQuestion{p.network, p.address, revision}, &a)
	if err != nil {
		return api.Faultf(api.Conflict, "node %s may have leased it, and does not answer: %w: start its daemon, or "+
			"remove it from the cluster with `fairlead cluster rm %s`", h.names[id], err, h.names[id])
	}
	if a.UsedBy != "" {
		used := escape.Line(a.UsedBy[:min(len(a.UsedBy), maxUser)])
		return api.Faultf(api.Conflict, "%s on node %s has it: detach that one, or request another address", used,
			h.names[id])
	}
	return nil
}

// host returns the host's network with this name.
func (n *Networks) host(name string) model.Network {
	network, _ := (model.State{Networks: n.cfg.Host.Networks()}).Network(name)
	return network
}

// awaitApplied waits until the host has the networks of a revision.
func (n *Networks) awaitApplied(ctx context.Context, revision int64) error {
	for {
		n.mu.Lock()
		applied, progress := n.applied, n.progress
		n.mu.Unlock()
		if applied >= revision {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return errors.New("this node does not follow the records of the cluster: `fairlead cluster status` shows why")
		}
	}
}
