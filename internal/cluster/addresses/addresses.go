// Package addresses changes and shows the records of a cluster's virtual addresses. It does not hold
// addresses, and does not decide which node does: package vip decides that on each node.
//
//	orders ──► transactions on addrs/ADDR ──► holder and candidates (package vip)
//	snapshots ──► Update ──► List, events
//
// An order never writes the holder, the epoch or the sequence of a record. It is one more change of
// the record: the holder repeats its renewal on the new revision, and candidates wait anew.
package addresses

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/hold"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/vip"
)

// Runner holds addresses on this host. *hold.Runner implements it.
type Runner interface {
	// States returns the addresses as this host sees them.
	States() []hold.State
	// Force makes this host claim an address when its lease has ended, although the record does not
	// list this node.
	Force(netip.Addr) error
}

// Config contains what Addresses needs.
type Config struct {
	Runner Runner
	// Store commits transactions of the node.
	Store kv.Committer
	// Note records an event.
	Note func(api.Event)
	Now  func() time.Time
}

// Addresses are the cluster's virtual addresses as this node sees them. It is a member.Consumer.
type Addresses struct {
	cfg    Config
	latest member.Latest

	// mu protects the fields below.
	mu sync.Mutex
	// seen is when this node has seen the last change of each record.
	seen map[string]time.Time
	// problems are those of records, by their keys.
	problems map[string]string
}

var _ member.Consumer = (*Addresses)(nil)

// New returns Addresses without a snapshot.
func New(cfg Config) *Addresses {
	return &Addresses{cfg: cfg, seen: map[string]time.Time{}, problems: map[string]string{}}
}

// Update takes over a snapshot, and returns the problems: records that cannot be read.
func (a *Addresses) Update(_ context.Context, self member.Self, u kv.Update) (problems []string) {
	a.mu.Lock()
	for _, key := range u.Changed {
		if strings.HasPrefix(key, record.Addresses) {
			a.learn(u.Snapshot, key)
		}
	}
	problems = slices.Sorted(maps.Values(a.problems))
	a.mu.Unlock()
	a.noteChanges(a.latest.Replace(self, u.Snapshot), u)
	return problems
}

// learn takes over a record that has changed. The caller has the lock.
func (a *Addresses) learn(s kv.Snapshot, key string) {
	delete(a.seen, key)
	delete(a.problems, key)
	e, exists := s.Get(key)
	if !exists {
		return
	}
	a.seen[key] = a.cfg.Now()
	if _, err := record.Decode[record.Address](e); err != nil {
		a.problems[key] = "address " + strings.TrimPrefix(key, record.Addresses) + ": " + err.Error()
	}
}

// Leave forgets the cluster's addresses.
func (a *Addresses) Leave() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen, a.problems = map[string]time.Time{}, map[string]string{}
	a.latest.Replace(member.Self{}, nil)
	return nil
}

// noteChanges records an event for each address whose holder has changed.
func (a *Addresses) noteChanges(before kv.Snapshot, u kv.Update) {
	if before == nil {
		return
	}
	for _, key := range u.Changed {
		if !strings.HasPrefix(key, record.Addresses) {
			continue
		}
		was, _, _ := record.Get[record.Address](before, key)
		is, _, err := record.Get[record.Address](u.Snapshot, key)
		if err != nil || was.Epoch == is.Epoch && was.Holder == is.Holder {
			continue
		}
		e := api.Event{Kind: api.AddressHeld, Object: "address " + strings.TrimPrefix(key, record.Addresses),
			Detail: "by node " + member.NodeName(u.Snapshot, is.Holder)}
		switch {
		case is.Holder == "":
			e.Kind, e.Detail = api.AddressReleased, "by node "+member.NodeName(before, was.Holder)
		case was.Holder != "" && was.Holder != is.Holder:
			e.Detail += ", which replaces " + member.NodeName(before, was.Holder)
		}
		if is.Holder != was.Holder || is.Holder != "" {
			a.cfg.Note(e)
		}
	}
}

// List returns the virtual addresses of the cluster. Returns a Fault with code NotFound if the host
// belongs to no cluster.
func (a *Addresses) List() ([]api.ClusterAddress, error) {
	s, _, err := a.latest.Current()
	if err != nil {
		return nil, err
	}
	here := map[netip.Addr]hold.State{}
	for _, state := range a.cfg.Runner.States() {
		here[state.Address] = state
	}
	all := []api.ClusterAddress{}
	for e, r := range record.Each[record.Address](s, record.Addresses) {
		all = append(all, withState(a.shown(s, e.Key, r), here[r.Prefix.Addr()]))
	}
	return all, nil
}

// Holder returns the node that holds a virtual address. Returns a Fault with code NotFound if there is no
// cluster, or no other node holds it.
func (a *Addresses) Holder(at netip.Addr) (id, name string, err error) {
	s, self, err := a.latest.Current()
	if err != nil {
		return "", "", err
	}
	r, exists := recordOf(s, at)
	if !exists || r.Holder == "" || r.Holder == self.Node {
		return "", "", api.Faultf(api.NotFound, "no other node of the cluster holds the address %s", at)
	}
	return r.Holder, member.NodeName(s, r.Holder), nil
}

// withState adds what this host does about an address.
func withState(v api.ClusterAddress, here hold.State) api.ClusterAddress {
	v.Barred, v.Answers = here.Barred, here.Role == hold.Holder
	if v.Answers {
		v.Lease = here.Remaining
	}
	if !here.Conflict.At.IsZero() {
		v.Conflict = &api.AddressConflictAt{MAC: here.Conflict.By.String(), At: here.Conflict.At}
	}
	return v
}

// shown returns the state of an address by its record.
func (a *Addresses) shown(s kv.Snapshot, key string, r record.Address) api.ClusterAddress {
	a.mu.Lock()
	age := a.cfg.Now().Sub(a.seen[key])
	a.mu.Unlock()
	v := api.ClusterAddress{ClusterAddressSpec: api.ClusterAddressSpec{Address: r.Prefix, Link: r.Link, Hold: r.Hold,
		Announce: r.Announce},
		Holder: member.NodeName(s, r.Holder), Since: r.Since, Epoch: r.Epoch,
		Renewed: age, Target: member.NodeName(s, r.Target),
		Removed: r.Removed}
	if r.Holder == "" {
		v.Since = time.Time{}
	} else {
		v.Lease = max(0, r.Hold-age)
	}
	v.Candidates = member.NodeNames(s, r.Candidates)
	return v
}

// shownNodes returns names of nodes as a text.
func shownNodes(s kv.Snapshot, ids []string) string {
	return strings.Join(member.NodeNames(s, ids), ", ")
}

// recordOf returns the record of an address in a snapshot, and whether a node can hold it.
func recordOf(s kv.Snapshot, at netip.Addr) (record.Address, bool) {
	r, exists, _ := record.Get[record.Address](s, record.Key(record.Addresses, at.String()))
	return r, exists
}

// patience is for how long an order waits for the nodes: longer than a claim takes after the holder's last
// renewal.
func patience(hold time.Duration) time.Duration { return 2*vip.Wait(hold) + 5*time.Second }
