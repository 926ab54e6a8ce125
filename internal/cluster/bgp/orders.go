package bgp

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
)

// AddPeer adds a router to which the nodes announce addresses. If the cluster has it with the same settings,
// it changes nothing. Returns a Fault: NotFound if the host belongs to no cluster or a node is unknown,
// Conflict if the router exists with other settings, Invalid for settings that no session can have.
func (n *Announcer) AddPeer(ctx context.Context, p api.ClusterBGPPeer) (api.Result, error) {
	s, _, err := n.latest.Current()
	if err != nil {
		return api.Result{}, err
	}
	want, err := newPeer(s, p)
	if err != nil {
		return api.Result{}, err
	}
	key := record.Key(record.BGPPeers, p.Address.String())
	value := record.Encode(want)
	result, lost, err := kv.Repeat(ctx, n.cfg.Store, kv.Txn{If: []kv.Condition{{Key: key}},
		Then: []kv.Change{{Key: key, Value: value}}})
	same := slices.ContainsFunc(result.Current, func(e kv.Entry) bool {
		return e.Key == key && bytes.Equal(e.Value, value)
	})
	switch {
	case err != nil:
		return api.Result{}, fmt.Errorf("add router %s: %w", p.Address, err)
	case result.Committed || same && lost:
		return api.Result{Changed: true}, nil
	case same:
		return api.Result{Notes: []string{fmt.Sprintf("the cluster has the router %s already", p.Address)}}, nil
	}
	return api.Result{}, api.Faultf(api.Conflict, "add router %s: the cluster has it with other settings: remove it "+
		"with `fairlead cluster bgp rm %s` first", p.Address, p.Address)
}

// RemovePeer removes a router. Returns a Fault with code NotFound if the cluster does not have it. It asks the store:
// the router can have been added a moment ago, and the snapshot waits while the host applies an earlier one.
func (n *Announcer) RemovePeer(ctx context.Context, r api.ClusterBGPPeerRequest) (api.Result, error) {
	s, _, err := n.latest.Current()
	if err != nil {
		return api.Result{}, err
	}
	key := record.Key(record.BGPPeers, r.Address.String())
	have, err := kv.Read(ctx, n.cfg.Store, key)
	if err != nil {
		return api.Result{}, fmt.Errorf("remove router %s: %w", r.Address, err)
	}
	entry, exists := have[key]
	if !exists {
		return api.Result{}, unknown(s, r.Address)
	}
	result, lost, err := kv.Repeat(ctx, n.cfg.Store, kv.Txn{
		If:   []kv.Condition{{Key: key, Revision: entry.Revision, Value: entry.Value}},
		Then: []kv.Change{{Key: key}}})
	remains := slices.ContainsFunc(result.Current, func(e kv.Entry) bool { return e.Key == key })
	switch {
	case err != nil:
		return api.Result{}, fmt.Errorf("remove router %s: %w", r.Address, err)
	case !result.Committed && (remains || !lost):
		return api.Result{}, fmt.Errorf("remove router %s: another node changes it at the same time: try again", r.Address)
	}
	return api.Result{Changed: true}, nil
}

// Peers returns the cluster's routers with the sessions of this node. Returns a Fault with code NotFound if
// the host belongs to no cluster.
func (n *Announcer) Peers() ([]api.ClusterBGPSession, error) {
	s, _, err := n.latest.Current()
	if err != nil {
		return nil, err
	}
	own, err := n.sessions()
	if err != nil {
		return nil, err
	}
	all := []api.ClusterBGPSession{}
	for _, p := range record.Each[record.BGPPeer](s, record.BGPPeers) { // Update reports the others
		v := api.ClusterBGPSession{ClusterBGPPeer: api.ClusterBGPPeer{Address: p.Address, AS: p.AS, LocalAS: p.LocalAS,
			BFD: p.BFD}}
		v.Nodes = member.NodeNames(s, p.Nodes)
		if i := slices.IndexFunc(own, func(o session) bool { return o.Address == p.Address }); i >= 0 {
			v.State, v.Since, v.BFDState = own[i].state, own[i].since, own[i].bfd
		}
		all = append(all, v)
	}
	return all, nil
}

// newPeer returns the record of a router.
func newPeer(s kv.Snapshot, p api.ClusterBGPPeer) (record.BGPPeer, error) {
	r := record.BGPPeer{Address: p.Address, AS: p.AS, LocalAS: p.LocalAS, BFD: p.BFD}
	a := p.Address
	if err := r.Validate(); err != nil {
		return r, api.Faultf(api.Invalid, "router %s: %w", a, err)
	}
	for _, other := range record.Each[record.BGPPeer](s, record.BGPPeers) {
		if other.Address != a && other.LocalAS != p.LocalAS {
			return r, api.Faultf(api.Conflict, "router %s: the nodes have the autonomous system %d for router %s: they can "+
				"have only one", a, other.LocalAS, other.Address)
		}
	}
	var err error
	r.Nodes, err = member.FindNodes(s, p.Nodes)
	return r, err
}

// unknown is the error for a router that the cluster does not have.
func unknown(s kv.Snapshot, a netip.Addr) error {
	return api.Faultf(api.NotFound, "the cluster has no router %s: %s", a, member.Have(s, record.BGPPeers))
}
