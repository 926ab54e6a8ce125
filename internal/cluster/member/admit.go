package member

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
	"fairlead/internal/model"
)

// joinRequest is what a host that joins sends to a node. The connection is encrypted, and the host
// has verified the node with the hash of its token.
type joinRequest struct {
	Secret    []byte       `json:"secret"`
	Node      string       `json:"node"`
	Name      string       `json:"name"`
	Addresses []netip.Addr `json:"addresses"`
	MTU       int          `json:"mtu,omitempty"`
	Port      uint16       `json:"port"`
	Version   string       `json:"version"`
	Format    int          `json:"format"`
	// Request is a certificate request, DER.
	Request []byte `json:"request"`
}

// joinAnswer is what the host needs to be a node.
type joinAnswer struct {
	Cluster     string         `json:"cluster"`
	ClusterName string         `json:"clusterName"`
	Certificate []byte         `json:"certificate"`
	ClusterKey  []byte         `json:"clusterKey"`
	Access      api.EtcdAccess `json:"access"`
}

// admit makes a host a node of the cluster, if its token is valid. A host whose id and key the
// cluster has already gets another certificate without a token: its answer was lost.
func (m *Member) admit(ctx context.Context, r joinRequest) (joinAnswer, error) {
	_, snapshot, err := m.inCluster()
	if err != nil {
		return joinAnswer{}, err
	}
	n, err := m.newcomer(r)
	if err != nil {
		return joinAnswer{}, err
	}
	public, err := trust.OpenRequest(r.Request)
	if err == nil {
		n.KeyHash, err = keyHash(public)
	}
	if err != nil {
		return joinAnswer{}, api.Faultf(api.Invalid, "join: %w", err)
	}
	// Any host can ask. A token can be newer than the snapshot, but only few requests with such a token may
	// cost a transaction.
	if !expects(snapshot, n, r.Secret) && !m.strangers.allow(m.cfg.Now()) {
		return joinAnswer{}, errCrowd
	}
	if err := m.enter(ctx, snapshot, n, r.Secret); err != nil {
		return joinAnswer{}, err
	}
	f := m.self()
	ca, err := authorityOf(f, snapshot)
	if err != nil {
		return joinAnswer{}, err
	}
	der, err := ca.Sign(trust.Identity{Cluster: f.Cluster, Node: n.ID}, public, m.cfg.Now())
	return joinAnswer{Cluster: f.Cluster, ClusterName: f.ClusterName, Certificate: der, ClusterKey: f.ClusterKey,
		Access: f.Access}, err
}

// newcomer checks a request, and returns the node's record.
func (m *Member) newcomer(r joinRequest) (record.Node, error) {
	n := record.Node{ID: r.Node, Name: r.Name, Addresses: r.Addresses, MTU: r.MTU, Port: r.Port,
		Version: r.Version, Joined: m.cfg.Now().UTC()}
	switch {
	case r.Format < record.Format:
		return n, api.Faultf(api.Conflict,
			"join: the cluster has records of format %d, and version %s of the joining host "+
				"knows %d: install version %s", record.Format, r.Version, r.Format, m.cfg.Version)
	case !trust.ValidID(r.Node) || r.Port == 0 || len(r.Version) > 64:
		return n, api.Faultf(api.Invalid, "join: the request is not valid")
	}
	if err := model.ValidName(r.Name); err != nil {
		return n, api.Faultf(api.Invalid, "join: %w", err)
	}
	return n, validAddresses(r.Addresses)
}

// errToken is the only answer to a token that cannot be used, so that it says nothing about others.
var errToken = api.Faultf(api.Invalid, "join: the token is wrong, was used, or has expired: create another one with "+
	"`fairlead cluster token create` on a node")

// errCrowd is the answer to hosts whose tokens the node does not know, if there are too many.
var errCrowd = api.Faultf(api.Failed, "join: the node gets too many requests with unknown tokens: try again")

// expects reports whether the snapshot has the token, or the node with the key that the request proves. The id alone
// is no secret: each node shows its certificate to any host.
func expects(s kv.Snapshot, n record.Node, secret []byte) bool {
	_, token := s.Get(record.Key(record.Tokens, trust.HashSecret(secret)))
	have, node, err := record.Get[record.Node](s, record.Key(record.Nodes, n.ID))
	return token || node && err == nil && have.KeyHash == n.KeyHash
}

// freeAddresses returns an error if another node has an address of this one.
func freeAddresses(s kv.Snapshot, n record.Node) error {
	for id, other := range nodesOf(s) {
		taken := slices.IndexFunc(n.Addresses, func(a netip.Addr) bool { return slices.Contains(other.Addresses, a) })
		if taken >= 0 && id != n.ID {
			return api.Faultf(api.Conflict, "join: node %s already has the address %s: choose another with --address, or "+
				"remove that node with `fairlead cluster rm %s`", other.Name, n.Addresses[taken], other.Name)
		}
	}
	return nil
}

// enter writes the record of a node and uses the token, in one transaction.
func (m *Member) enter(ctx context.Context, s kv.Snapshot, n record.Node, secret []byte) error {
	hash := trust.HashSecret(secret)
	token, node, name := record.Key(record.Tokens, hash), record.Key(record.Nodes, n.ID),
		record.Key(record.NodeNames, n.Name)
	for {
		have, err := current(ctx, m, record.MetaKey, token, node, name)
		if err != nil {
			return fmt.Errorf("join: %w", err)
		}
		if e, known := have[node]; known {
			return sameNode(e, n)
		}
		use, err := useToken(have[token], hash, secret, m.cfg.Now())
		if err != nil {
			return err
		}
		if err := freeAddresses(s, n); err != nil {
			return err
		}
		if _, taken := have[name]; taken {
			return api.Faultf(api.Conflict,
				"join: the cluster has another node %s: choose another name with --node-name, or "+
					"remove that node with `fairlead cluster rm %s`", n.Name, n.Name)
		}
		meta, err := openMeta(have[record.MetaKey])
		if err != nil {
			return err
		}
		result, err := commit(ctx, m, kv.Txn{
			If:   []kv.Condition{meta, {Key: token, Revision: have[token].Revision}, {Key: node}, {Key: name}},
			Then: append(nodeChanges(n), use),
		})
		if err != nil {
			return fmt.Errorf("join: %w", err)
		}
		if result.Committed {
			return nil
		}
	}
}

// openMeta returns the condition that the last node does not leave meanwhile.
func openMeta(e kv.Entry) (kv.Condition, error) {
	meta, err := record.Decode[record.Meta](e)
	if err == nil && meta.Closed {
		err = api.Faultf(api.Conflict, "join: the last node of the cluster is leaving it: create another cluster with "+
			"`fairlead cluster init`")
	}
	return kv.Condition{Key: e.Key, Revision: e.Revision}, err
}

// sameNode returns an error unless the record has the key of the node, which the request proved.
func sameNode(e kv.Entry, n record.Node) error {
	have, err := record.Decode[record.Node](e)
	if err == nil && (have.KeyHash != n.KeyHash || have.Name != n.Name) {
		err = errToken
	}
	return err
}

// useToken returns the change that uses a token once.
func useToken(e kv.Entry, hash string, secret []byte, now time.Time) (kv.Change, error) {
	if e.Value == nil || !trust.SecretMatches(hash, secret) {
		return kv.Change{}, errToken
	}
	t, err := record.Decode[record.Token](e)
	if err != nil || t.Uses < 1 || now.After(t.Expires) {
		return kv.Change{}, errToken
	}
	if t.Uses--; t.Uses == 0 {
		return kv.Change{Key: e.Key}, nil
	}
	return kv.Change{Key: e.Key, Value: record.Encode(t)}, nil
}

// current reads keys from the store. The condition that a key of a name that no record has exists is
// false, so that the store answers with the others.
func current(ctx context.Context, store kv.Committer, keys ...string) (map[string]kv.Entry, error) {
	conditions := []kv.Condition{{Key: "absent", Revision: 1}}
	for _, key := range keys {
		conditions = append(conditions, kv.Condition{Key: key})
	}
	result, err := commit(ctx, store, kv.Txn{If: conditions})
	have := map[string]kv.Entry{}
	for _, e := range result.Current {
		have[e.Key] = e
	}
	return have, err
}

// authorityOf returns the cluster's CA, which signs certificates.
func authorityOf(f file, s kv.Snapshot) (*trust.Authority, error) {
	sealed, known, err := record.Get[record.Authority](s, record.CAKey)
	if err == nil && !known {
		err = errors.New("the cluster has no record with it")
	}
	if err != nil {
		return nil, fmt.Errorf("read the CA's key: %w", err)
	}
	return trust.OpenAuthority(f.CA, sealed.Sealed, f.ClusterKey)
}
