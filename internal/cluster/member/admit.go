package member

import (
	"bytes"
	"context"
	"crypto/tls"
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
	// Request is a certificate request, DER. Proof proves on this connection that the host has its key (trust.Prove).
	Request []byte `json:"request"`
	Proof   []byte `json:"proof"`
	// Instance is the host's instance of the node.
	Instance record.Instance `json:"instance,omitzero"`
}

// joinAnswer is what the host needs to be a node.
type joinAnswer struct {
	Cluster     string         `json:"cluster"`
	ClusterName string         `json:"clusterName"`
	Certificate []byte         `json:"certificate"`
	ClusterKey  []byte         `json:"clusterKey"`
	Access      api.EtcdAccess `json:"access"`
}

// admission makes hosts nodes of the cluster.
type admission struct{ *Member }

// admit makes a host a node of the cluster, if its token is valid. A host whose id and key the
// cluster has already gets another certificate without a token: its answer was lost. It proves on the
// connection that it has the key.
func (m admission) admit(ctx context.Context, r joinRequest, on *tls.ConnectionState) (joinAnswer, error) {
	_, snapshot, err := m.inCluster()
	if err != nil {
		return joinAnswer{}, err
	}
	n, err := m.nodeOf(r)
	if err != nil {
		return joinAnswer{}, err
	}
	public, err := trust.OpenRequest(r.Request)
	if err == nil {
		n.KeyHash, err = trust.HashKey(public)
	}
	if err != nil {
		return joinAnswer{}, api.Faultf(api.Invalid, "join: %w", err)
	}
	// Any host can ask. A token can be newer than the snapshot, but only few requests with such a token may
	// cost a transaction.
	c := newcomer{node: n, secret: r.Secret, proved: trust.Proved(public, on, r.Proof)}
	if !c.expected(snapshot) && !m.strangers.allow(m.cfg.Now()) {
		return joinAnswer{}, errCrowd
	}
	if err := m.enter(ctx, snapshot, c); err != nil {
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

// newcomer is a host that asks to be a node.
type newcomer struct {
	node   record.Node
	secret []byte
	// proved is true if the host has proved that it has the node's key.
	proved bool
}

// nodeOf checks a request, and returns the node's record.
func (m admission) nodeOf(r joinRequest) (record.Node, error) {
	n := record.Node{ID: r.Node, Name: r.Name, Addresses: r.Addresses, MTU: r.MTU, Port: r.Port,
		Version: r.Version, Joined: m.cfg.Now().UTC(), Instance: r.Instance}
	switch {
	case r.Format < record.Format:
		return n, api.Faultf(api.Conflict,
			"join: the cluster has records of format %d, and version %s of the joining host "+
				"knows %d: install version %s", record.Format, r.Version, r.Format, m.cfg.Version)
	case !trust.ValidID(r.Node) || r.Port == 0 || len(r.Version) > 64 || !validInstance(r.Instance):
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

// expected reports whether the snapshot has the token, or the node with the key that the host has proved. The id
// alone is no secret: each node shows its certificate to any host.
func (c newcomer) expected(s kv.Snapshot) bool {
	_, token := s.Get(record.Key(record.Tokens, trust.HashSecret(c.secret)))
	have, node, err := record.Get[record.Node](s, record.Key(record.Nodes, c.node.ID))
	return token || node && err == nil && have.KeyHash == c.node.KeyHash && c.proved
}

// freeAddresses returns an error if another node has an address, or if it is a virtual one.
func freeAddresses(s kv.Snapshot, node string, addresses []netip.Addr) error {
	for _, a := range addresses {
		for id, other := range nodesOf(s) {
			if id != node && slices.Contains(other.Addresses, a) {
				return api.Faultf(api.Conflict, "node %s already has the address %s: choose another one, or remove that "+
					"node with `fairlead cluster rm %s`", other.Name, a, other.Name)
			}
		}
		if _, virtual := s.Get(record.Key(record.Addresses, a.String())); virtual {
			return api.Faultf(api.Conflict, "%s is a virtual address of the cluster: choose an address that stays on the "+
				"host", a)
		}
	}
	return nil
}

// enter writes the record of a node and uses the token, in one transaction. It depends on meta and writes meta: of
// several transactions that give nodes addresses, each has seen the addresses of the one before.
func (m admission) enter(ctx context.Context, s kv.Snapshot, c newcomer) error {
	for {
		t, err := m.entrance(ctx, s, c)
		if err != nil {
			return err
		}
		if len(t.Then) == 0 {
			return nil
		}
		result, err := commit(ctx, m, t)
		if err != nil {
			return fmt.Errorf("join: %w", err)
		}
		if result.Committed {
			return nil
		}
		if s, err = m.snapshotAt(ctx, newestRevision(result.Current)); err != nil {
			return fmt.Errorf("join: %w", err)
		}
	}
}

// newestRevision returns that of the newest of some entries.
func newestRevision(entries []kv.Entry) (newest int64) {
	for _, e := range entries {
		newest = max(newest, e.Revision)
	}
	return newest
}

// entrance returns the transaction that makes the host a node. It has no change if the host is one already.
func (m admission) entrance(ctx context.Context, s kv.Snapshot, c newcomer) (t kv.Txn, err error) {
	n, hash := c.node, trust.HashSecret(c.secret)
	token, node, name := record.Key(record.Tokens, hash), record.Key(record.Nodes, n.ID),
		record.Key(record.NodeNames, n.Name)
	have, err := kv.Read(ctx, m, token, node, name)
	if err != nil {
		return t, fmt.Errorf("join: %w", err)
	}
	meta, touched, err := openMeta(s)
	if err != nil {
		return t, err
	}
	if e, known := have[node]; known {
		again, changed, err := c.again(e)
		if err != nil || !changed {
			return t, err
		}
		t = kv.Txn{If: []kv.Condition{meta, {Key: node, Revision: e.Revision}},
			Then: []kv.Change{touched, {Key: node, Value: record.Encode(again)}}}
	} else {
		use, err := useToken(have[token], hash, c.secret, m.cfg.Now())
		if err != nil {
			return t, err
		}
		if _, taken := have[name]; taken {
			return t, api.Faultf(api.Conflict,
				"join: the cluster has another node %s: choose another name with --node-name, or "+
					"remove that node with `fairlead cluster rm %s`", n.Name, n.Name)
		}
		t = kv.Txn{If: []kv.Condition{meta, {Key: token, Revision: have[token].Revision}, {Key: node}, {Key: name}},
			Then: append(nodeChanges(n), touched, use)}
	}
	if err := freeAddresses(s, n.ID, n.Addresses); err != nil {
		return t, fmt.Errorf("join: %w", err)
	}
	return t, nil
}

// again returns the record of a node that joins again with its key, and whether it changes. Returns errToken if the
// host has not proved that it has the key.
func (c newcomer) again(e kv.Entry) (n record.Node, changed bool, err error) {
	if n, err = record.Decode[record.Node](e); err != nil {
		return n, false, err
	}
	if !c.proved || n.KeyHash != c.node.KeyHash || n.Name != c.node.Name {
		return n, false, errToken
	}
	was := record.Encode(n)
	n.Addresses, n.Port, n.MTU, n.Version = c.node.Addresses, c.node.Port, c.node.MTU, c.node.Version
	n.Instance = c.node.Instance
	return n, !bytes.Equal(was, record.Encode(n)), nil
}

// openMeta returns the condition that meta is that of the snapshot, and the change that replaces it by an equal one.
// Returns a Fault with code Conflict if the last node is leaving.
func openMeta(s kv.Snapshot) (kv.Condition, kv.Change, error) {
	e, _ := s.Get(record.MetaKey)
	meta, err := record.Decode[record.Meta](e)
	if err == nil && meta.Closed {
		err = api.Faultf(api.Conflict, "join: the last node of the cluster is leaving it: create another cluster with "+
			"`fairlead cluster init`")
	}
	return kv.Condition{Key: e.Key, Revision: e.Revision}, kv.Change{Key: e.Key, Value: e.Value}, err
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
