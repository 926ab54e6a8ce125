package addresses

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/hold"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/vip"
)

// The limits of a change.
const (
	// attempts is how many times a change is tried. Its only competitor is the holder, which renews
	// its record each quarter of the hold time.
	attempts = 16
	// ownLimit is how long an order waits to see its own change.
	ownLimit = 2 * time.Second
)

// AddAddress adds a virtual address to the cluster. If the cluster has it with the same settings, it changes
// nothing. Returns a Fault: NotFound if the host belongs to no cluster, Conflict if the address exists with
// other settings or belongs to something else, Invalid for settings that no address can have.
func (a *Addresses) AddAddress(ctx context.Context, spec api.ClusterAddressSpec) (api.Result, error) {
	s, _, err := a.latest.Current()
	if err != nil {
		return api.Result{}, err
	}
	want, err := newRecord(s, spec)
	if err != nil {
		return api.Result{}, err
	}
	changed, revision, err := a.change(ctx, want.Prefix.Addr(), func(r *record.Address, exists bool) (verdict, error) {
		switch {
		case !exists:
			*r = want
			return put, nil
		case r.Removed:
			return keep, api.Faultf(api.Conflict, "add address %s: it is being removed: try again when "+
				"`fairlead cluster address ls` no longer shows it", r.Prefix)
		}
		return keep, sameSettings(s, *r, want)
	})
	switch {
	case err != nil:
		return api.Result{}, err
	case !changed:
		return api.Result{Notes: []string{fmt.Sprintf("the cluster has the address %s already", want.Prefix)}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ownLimit)
	defer cancel()
	a.latest.Await(ctx, revision, func(kv.Snapshot) bool { return true })
	return api.Result{Changed: true}, nil
}

// sameSettings returns an error if two records differ in what AddAddress sets.
func sameSettings(s kv.Snapshot, have, want record.Address) error {
	what := ""
	switch {
	case have.Prefix != want.Prefix:
		what = "prefix length " + fmt.Sprint(have.Prefix.Bits())
	case have.Announce != want.Announce && have.Announce == "":
		what = "held by one node"
	case have.Announce != want.Announce:
		what = "announce " + have.Announce
	case have.Hold != want.Hold:
		what = "hold time " + have.Hold.String()
	case have.Link != want.Link && have.Link == "":
		what = "link that has its subnet"
	case have.Link != want.Link:
		what = "link " + have.Link
	case !slices.Equal(have.Candidates, want.Candidates) && len(have.Candidates) == 0:
		what = "candidates: all nodes"
	case !slices.Equal(have.Candidates, want.Candidates):
		what = "candidates " + shownNodes(s, have.Candidates)
	default:
		return nil
	}
	return api.Faultf(api.Conflict, "add address %s: the cluster has it with other settings (%s): they cannot be "+
		"changed in place: remove the address with `fairlead cluster address rm %s` first", want.Prefix, what,
		want.Prefix.Addr())
}

// MoveAddress moves an address to another node, and waits until that holds it. The holder stops answering
// before the other node begins. If that has just started, the holder keeps the address until it can take it.
// Returns a Fault: NotFound if the cluster has no such address or node, Conflict if the node cannot hold it.
func (a *Addresses) MoveAddress(ctx context.Context, r api.ClusterAddressRequest) (api.Result, error) {
	s, _, err := a.latest.Current()
	if err != nil {
		return api.Result{}, err
	}
	have, exists := recordOf(s, r.Address)
	if !exists {
		return api.Result{}, unknown(s, r.Address)
	}
	if have.Announce != "" {
		return api.Result{}, api.Faultf(api.Conflict, "move address %s: all candidates have it at the same time: drain a "+
			"node to take its connections away (`fairlead cluster drain NODE`)", r.Address)
	}
	target, err := targetOf(s, have, r.Node)
	if err != nil {
		return api.Result{}, err
	}
	name := member.NodeName(s, target)
	if have.Holder == target {
		return api.Result{Notes: []string{fmt.Sprintf("node %s holds %s already", name, r.Address)}}, nil
	}
	a.settle(ctx, s, target, have.Hold)
	_, revision, err := a.change(ctx, r.Address, func(now *record.Address, exists bool) (verdict, error) {
		switch {
		case !exists || now.Removed:
			return keep, unknown(s, r.Address)
		case now.Holder == target || now.Target == target:
			return keep, nil
		}
		now.Target = target
		return put, nil
	})
	if err != nil {
		return api.Result{}, err
	}
	return a.moved(ctx, r.Address, revision, have.Hold, target)
}

// startLimit is how long a node may take from its start until it has read the records.
const startLimit = time.Second

// settle waits while a node has started too recently to claim an address: it does not know what it promised before
// (package vip). If the clocks of the hosts differ, it may wait in vain, or not long enough; then another node takes
// the address.
func (a *Addresses) settle(ctx context.Context, s kv.Snapshot, node string, hold time.Duration) {
	alive, _, err := record.Get[record.Alive](s, record.Key(record.Alives, node))
	longest := vip.Wait(hold) + startLimit
	if left := longest - a.cfg.Now().Sub(alive.Since); err == nil && left > 0 {
		kv.Wait(ctx, min(left, longest))
	}
}

// moved waits for the end of a move, and reports it.
func (a *Addresses) moved(ctx context.Context, at netip.Addr, revision int64, hold time.Duration,
	target string) (api.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, patience(hold))
	defer cancel()
	a.latest.Await(ctx, revision, func(s kv.Snapshot) bool {
		r, exists := recordOf(s, at)
		return !exists || r.Target != target
	})
	s, _, err := a.latest.Current()
	if err != nil {
		return api.Result{}, err
	}
	name := member.NodeName(s, target)
	switch r, exists := recordOf(s, at); {
	case !exists:
		return api.Result{}, api.Faultf(api.Conflict, "move address %s: it was removed meanwhile", at)
	case r.Holder == target:
		return api.Result{Changed: true, Notes: []string{fmt.Sprintf("node %s holds %s", name, at)}}, nil
	case r.Target == target && r.Holder == "":
		return api.Result{}, fmt.Errorf("move address %s: no node holds it: node %s has not taken it yet: see "+
			"`fairlead cluster status` for its problems", at, name)
	case r.Target == target:
		return api.Result{}, fmt.Errorf("move address %s: node %s has not given it up: if it is down, another node "+
			"takes the address when its lease has ended: see `fairlead cluster address ls`", at, member.NodeName(s, r.Holder))
	default:
		return api.Result{}, fmt.Errorf("move address %s: node %s holds it, because node %s did not take it: see "+
			"`fairlead cluster status` for its problems", at, member.NodeName(s, r.Holder), name)
	}
}

// ClaimAddress makes this host take an address whose holder is down and has listed no node that runs. It waits
// until this host holds it. The administrator guarantees that the holder is down (r.Force). Returns a Fault:
// NotFound if the cluster has no such address, Conflict if the holder is alive or this host cannot have it.
func (a *Addresses) ClaimAddress(ctx context.Context, r api.ClusterAddressRequest) (api.Result, error) {
	s, self, err := a.latest.Current()
	if err != nil {
		return api.Result{}, err
	}
	have, exists := recordOf(s, r.Address)
	switch {
	case !exists:
		return api.Result{}, unknown(s, r.Address)
	case have.Announce != "":
		return api.Result{}, api.Faultf(api.Conflict, "claim address %s: all candidates have it at the same time: it has "+
			"no holder", r.Address)
	case have.Holder == self.Node && a.answers(r.Address):
		return api.Result{Notes: []string{fmt.Sprintf("this node holds %s already", r.Address)}}, nil
	}
	if have.Holder != self.Node {
		if err := down(s, "claim", have, r.Force); err != nil {
			return api.Result{}, err
		}
	}
	if _, _, err := a.newest(ctx, record.Key(record.Addresses, r.Address.String())); err != nil {
		return api.Result{}, fmt.Errorf("claim address %s: %w", r.Address, err) // no node takes it without etcd
	}
	if err := a.cfg.Runner.Force(r.Address); err != nil {
		return api.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience(have.Hold))
	defer cancel()
	holder := ""
	if a.latest.Await(ctx, 0, func(now kv.Snapshot) bool {
		s = now
		have, _ := recordOf(now, r.Address)
		holder = have.Holder
		return holder == self.Node && a.answers(r.Address)
	}) {
		return api.Result{Changed: true}, nil
	}
	if holder != "" && holder != self.Node && holder != have.Holder {
		return api.Result{}, fmt.Errorf("claim address %s: node %s has taken it: see `fairlead cluster address ls`",
			r.Address, member.NodeName(s, holder))
	}
	return api.Result{}, fmt.Errorf("claim address %s: this node does not hold it yet: see `fairlead cluster address "+
		"ls` and the problems in `fairlead cluster status`", r.Address)
}

// answers reports whether this host answers for an address now. Its record can name this node although its lease has
// ended, because etcd or a candidate was away.
func (a *Addresses) answers(at netip.Addr) bool {
	return slices.ContainsFunc(a.cfg.Runner.States(), func(s hold.State) bool {
		return s.Address == at && s.Role == hold.Holder
	})
}

// down returns an error unless the holder of an address may be taken for down.
func down(s kv.Snapshot, verb string, r record.Address, force bool) error {
	at := r.Prefix.Addr()
	_, alive := s.Get(record.Key(record.Alives, r.Holder))
	switch {
	case alive && r.Holder != "":
		return api.Faultf(api.Conflict, "%s address %s: its holder, node %s, is alive: use `fairlead cluster address "+
			"move`; a node that has failed is shown as alive for about ten seconds", verb, at, member.NodeName(s, r.Holder))
	case !force:
		return api.Faultf(api.Conflict, "%s address %s: if node %s is cut off but runs, it can still answer for the "+
			"address, and then two hosts do: make sure that it is down, and use --force", verb, at, member.NodeName(s, r.Holder))
	}
	return nil
}

// RemoveAddress removes a virtual address, and waits until its holder has given it up. With r.Force, it does
// not wait for a holder that is not alive. Returns a Fault: NotFound if the cluster has no such address,
// Conflict if r.Force is set and the holder is alive.
func (a *Addresses) RemoveAddress(ctx context.Context, r api.ClusterAddressRequest) (api.Result, error) {
	s, _, err := a.latest.Current()
	if err != nil {
		return api.Result{}, err
	}
	var last record.Address
	sent := false
	changed, revision, err := a.change(ctx, r.Address, func(now *record.Address, exists bool) (verdict, error) {
		if sent && !exists { // an answer was lost
			return keep, nil
		}
		last, sent = *now, true
		switch {
		case !exists:
			return keep, unknown(s, r.Address)
		case now.Holder == "" || valid(*now) != nil || now.Prefix.Addr() != r.Address:
			// No node holds it, and none can claim it meanwhile.
			return remove, nil
		case r.Force:
			return remove, down(s, "remove", *now, true)
		case now.Removed:
			return keep, nil
		}
		now.Removed = true
		return put, nil
	})
	if err != nil {
		return api.Result{}, err
	}
	key := record.Key(record.Addresses, r.Address.String())
	ctx, cancel := context.WithTimeout(ctx, patience(last.Hold))
	defer cancel()
	if a.latest.Await(ctx, revision, func(s kv.Snapshot) bool { _, exists := s.Get(key); return !exists }) {
		return api.Result{Changed: true}, nil
	}
	return api.Result{Changed: changed}, fmt.Errorf("remove address %s: node %s has not given it up, and no other "+
		"node may delete its record: it is removed when the node is back. If that node is down for good, run "+
		"`fairlead cluster address rm %s --force`", r.Address, member.NodeName(s, last.Holder), r.Address)
}

// verdict is what a change does with a record.
type verdict int

const (
	keep verdict = iota
	put
	remove
)

// change changes the record of an address. The function gets the newest record and changes it; it can be
// called several times. It returns the revision from which snapshots have the change.
func (a *Addresses) change(ctx context.Context, at netip.Addr,
	fn func(r *record.Address, exists bool) (verdict, error)) (changed bool, revision int64, err error) {
	key := record.Key(record.Addresses, at.String())
	for range attempts {
		entry, own, err := a.newest(ctx, key)
		if err != nil {
			return changed, 0, fmt.Errorf("change address %s: %w", at, err)
		}
		r, _ := record.Decode[record.Address](entry) // the function sees an empty record
		what, err := fn(&r, entry.Value != nil)
		if err != nil || what == keep {
			return changed, entry.Revision, err
		}
		t := kv.Txn{If: []kv.Condition{own, {Key: key, Revision: entry.Revision, Value: entry.Value}},
			Then: []kv.Change{{Key: key}}}
		if what == put {
			r.Nonce = rand.Text()
			t.Then[0].Value = record.Encode(r)
		}
		result, lost, err := kv.Repeat(ctx, a.cfg.Store, t)
		changed = changed || lost // then the next attempt finds the change
		switch {
		case err != nil:
			return changed, 0, fmt.Errorf("change address %s: %w", at, err)
		case result.Committed:
			return true, result.Revision, nil
		}
	}
	return changed, 0, fmt.Errorf("change address %s: other nodes change it at the same time: try again", at)
}

// newest returns the newest entry of a key, and the condition that this host is a node.
func (a *Addresses) newest(ctx context.Context, key string) (e kv.Entry, own kv.Condition, err error) {
	_, self, err := a.latest.Current()
	if err != nil {
		return e, own, err
	}
	node := record.Key(record.Nodes, self.Node)
	have, err := kv.Read(ctx, a.cfg.Store, key, node)
	e = have[key]
	own = kv.Condition{Key: node, Revision: have[node].Revision, Value: have[node].Value}
	if err == nil && own.Value == nil {
		err = api.Faultf(api.Conflict, "this host was removed from the cluster: run `fairlead cluster leave` on it")
	}
	return e, own, err
}

// unknown is the error for an address that the cluster does not have.
func unknown(s kv.Snapshot, at netip.Addr) error {
	return api.Faultf(api.NotFound, "the cluster has no virtual address %s: %s", at,
		member.Have(s, record.Addresses))
}

// targetOf returns the id of the node with a name that can take the address, or of the first one that can if
// the name is empty.
func targetOf(s kv.Snapshot, r record.Address, name string) (string, error) {
	members := vip.MembersOf(s)
	nodes := members.Nodes(r)
	if name == "" {
		i := slices.IndexFunc(nodes.Able, func(id string) bool { return id != r.Holder })
		if i < 0 {
			return "", api.Faultf(api.Conflict, "move address %s: no other candidate is alive, not drained and able to "+
				"hold it: see `fairlead cluster status`", r.Prefix.Addr())
		}
		return nodes.Able[i], nil
	}
	n, err := member.FindNode(s, name)
	switch {
	case err != nil:
		return "", err
	case !slices.Contains(nodes.Candidates, n.ID):
		return "", api.Faultf(api.Conflict, "move address %s: node %s is not a candidate: it can move to %s",
			r.Prefix.Addr(), n.Name, shownNodes(s, nodes.Candidates))
	case n.Drained:
		return "", api.Faultf(api.Conflict, "move address %s: node %s is drained: end that with `fairlead cluster drain "+
			"%s --undo`", r.Prefix.Addr(), n.Name, n.Name)
	case members.Unable(n.ID, r.Prefix.Addr()) != "":
		return "", api.Faultf(api.Conflict, "move address %s: node %s cannot hold it: %s", r.Prefix.Addr(), n.Name,
			members.Unable(n.ID, r.Prefix.Addr()))
	case !slices.Contains(nodes.Able, n.ID):
		return "", api.Faultf(api.Conflict, "move address %s: node %s is not alive: see `fairlead cluster status`",
			r.Prefix.Addr(), n.Name)
	}
	return n.ID, nil
}
