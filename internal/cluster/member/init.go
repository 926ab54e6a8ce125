package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
	"fairlead/internal/model"
)

// defaultCluster is the name of a cluster whose creator gave it none.
const defaultCluster = "default"

// Init creates a cluster in etcd, with this host as its first node. It can be repeated after a
// crash or an error. Returns a Fault with code Conflict if the host belongs to a cluster, or if etcd
// has a cluster with the name.
func (m *Member) Init(ctx context.Context, r api.ClusterInit) error {
	m.orders.Lock()
	defer m.orders.Unlock()
	before := m.self()
	f, err := m.prepareInit(r)
	if err != nil {
		return err
	}
	fresh := f.Cluster != before.Cluster
	if before.Phase == phaseInit && fresh {
		if err := uncreate(ctx, m.cfg, before); err != nil {
			return fmt.Errorf("end the interrupted attempt to create cluster %s: %w: repeat that attempt, or forget it "+
				"with `fairlead cluster leave --force`", before.ClusterName, err)
		}
	}
	if err := m.set(f); err != nil {
		return err
	}
	err = inStore(m.cfg, f, func(store kv.Committer) error { return m.create(ctx, store, f) })
	if err != nil {
		// Without doubt, etcd has nothing of this attempt. Of an earlier one it may have.
		if exists := api.CodeOf(err) == api.Conflict; exists || fresh && !errors.Is(err, kv.ErrUnknown) {
			err = errors.Join(err, m.forget())
		}
		return err
	}
	f.Phase = phaseMember
	if err := m.set(f); err != nil {
		return err
	}
	m.cfg.Log.Info("cluster created", "name", f.ClusterName, "id", f.Cluster)
	return m.begin(ctx)
}

// begin starts the tasks of a host that has become a node, and waits a short time for the cluster's records: the next
// request needs them.
func (m *Member) begin(ctx context.Context) error {
	if err := m.start(); err != nil {
		return err
	}
	m.awaitOwn(ctx, 1)
	return nil
}

// inStore opens the store of a cluster that may not exist yet, and closes it after fn.
func inStore(cfg Config, f file, fn func(kv.Committer) error) error {
	store, err := cfg.Open(f.Access, f.ClusterName, "", cfg.Dir)
	if err != nil {
		return err
	}
	return errors.Join(fn(store), store.Close())
}

// uncreate deletes the cluster that an interrupted attempt may have created.
func uncreate(ctx context.Context, cfg Config, f file) error {
	return inStore(cfg, f, func(store kv.Committer) error {
		node := record.Key(record.Nodes, f.Node)
		have, err := kv.Read(ctx, store, record.MetaKey, node)
		if err != nil {
			return err
		}
		meta, err := record.Decode[record.Meta](have[record.MetaKey])
		if _, exists := have[record.MetaKey]; !exists || err == nil && meta.ID != f.Cluster {
			return nil
		}
		n, nodeErr := record.Decode[record.Node](have[node])
		if err := errors.Join(err, nodeErr); err != nil {
			return err
		}
		result, err := commit(ctx, store, kv.Txn{
			If: []kv.Condition{{Key: record.MetaKey, Revision: have[record.MetaKey].Revision}},
			Then: []kv.Change{{Key: record.MetaKey}, {Key: record.CAKey}, {Key: node},
				{Key: record.Key(record.NodeNames, n.Name)}}})
		if err == nil {
			err = changed(result)
		}
		return err
	})
}

// prepareInit returns the membership that Init is to create. It keeps the ids and keys of an
// earlier attempt with the same name and the same etcd.
func (m *Member) prepareInit(r api.ClusterInit) (file, error) {
	f := m.self()
	if err := f.refuseOther(phaseInit); err != nil {
		return f, err
	}
	if r.Name == "" {
		r.Name = defaultCluster
	}
	if err := model.ValidName(r.Name); err != nil {
		return f, api.Faultf(api.Invalid, "create cluster: %w", err)
	}
	if len(r.Etcd.Endpoints) == 0 {
		return f, api.Faultf(api.Invalid, "create cluster: want the URL of etcd, e.g. --etcd https://192.0.2.7:2379")
	}
	if f.Phase == phaseNone || f.ClusterName != r.Name || !slices.Equal(f.Access.Endpoints, r.Etcd.Endpoints) {
		var err error
		if f, err = newFile(phaseInit); err != nil {
			return f, err
		}
		if err := f.newAuthority(m); err != nil {
			return f, err
		}
	}
	f.ClusterName, f.Access = r.Name, r.Etcd
	return f, m.name(&f, r.ClusterNode, etcdHost(r.Etcd.Endpoints))
}

// refuseOther returns an error if the file is of another phase than none or this one.
func (f file) refuseOther(allowed phase) error {
	switch f.Phase {
	case phaseNone, allowed:
		return nil
	case phaseMember:
		return api.Faultf(api.Conflict, "this host already belongs to cluster %s: leave it first with "+
			"`fairlead cluster leave`", f.ClusterName)
	case phaseInit:
		return api.Faultf(api.Conflict,
			"creating a cluster was interrupted: repeat `fairlead cluster init`, or end it "+
				"with `fairlead cluster leave --force`")
	case phaseLeaving:
		return api.Faultf(api.Conflict, "leaving the cluster was interrupted: repeat `fairlead cluster leave`")
	}
	return api.Faultf(api.Conflict,
		"joining a cluster was interrupted: repeat `fairlead cluster join`, or end it with "+
			"`fairlead cluster leave --force`")
}

// newAuthority creates the cluster's keys and the certificate of its first node.
func (f *file) newAuthority(m *Member) error {
	f.Cluster, f.ClusterKey = trust.NewID(), trust.NewClusterKey()
	ca, err := trust.NewAuthority(f.Cluster, m.cfg.Now())
	if err != nil {
		return err
	}
	if f.Sealed, err = ca.Seal(f.ClusterKey); err != nil {
		return err
	}
	f.CA = ca.Certificate
	f.Certificate, err = ca.Sign(trust.Identity{Cluster: f.Cluster, Node: f.Node}, &f.key.PublicKey, m.cfg.Now())
	return err
}

// name sets the node's name and addresses. towards is a host that the node reaches.
func (m *Member) name(f *file, n api.ClusterNode, towards string) error {
	f.Name, f.Addresses, f.Port = n.Node, n.Addresses, n.Port
	if f.Name == "" {
		f.Name = m.cfg.Host
	}
	if f.Port == 0 {
		f.Port = Port
	}
	if err := model.ValidName(f.Name); err != nil {
		return api.Faultf(api.Invalid, "name the node: %w: name it with --node-name", err)
	}
	if len(f.Addresses) == 0 {
		if a, ok := sourceTowards(towards); ok {
			f.Addresses = []netip.Addr{a}
		}
	}
	f.Addresses = slices.Clone(f.Addresses)
	return m.ownAddresses(f.Addresses)
}

// etcdHost returns the host and port of the first URL.
func etcdHost(endpoints []string) string {
	u, err := url.Parse(endpoints[0])
	if err != nil {
		return ""
	}
	return u.Host
}

// sourceTowards returns the address from which this host reaches another one.
func sourceTowards(host string) (netip.Addr, bool) {
	conn, err := net.Dial("udp", host) // it sends nothing
	if err != nil {
		return netip.Addr{}, false
	}
	defer conn.Close()
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil || at.Addr().IsLoopback() {
		return netip.Addr{}, false
	}
	return at.Addr().Unmap().WithZone(""), true
}

// create writes the cluster's first records, unless an earlier attempt has.
func (m *Member) create(ctx context.Context, store kv.Committer, f file) error {
	n, err := m.newNode(f)
	if err != nil {
		return err
	}
	meta := record.Meta{ID: f.Cluster, Name: f.ClusterName, Format: record.Format, CA: trust.PEM(f.CA),
		Created: m.cfg.Now().UTC()}
	result, err := commit(ctx, store, kv.Txn{
		If: []kv.Condition{{Key: record.MetaKey}},
		Then: append([]kv.Change{
			{Key: record.MetaKey, Value: record.Encode(meta)},
			{Key: record.CAKey, Value: record.Encode(record.Authority{Sealed: f.Sealed})},
		}, nodeChanges(n)...),
	})
	if err != nil {
		return fmt.Errorf("create cluster %s in etcd: %w", f.ClusterName, err)
	}
	if result.Committed {
		return nil
	}
	have, err := record.Decode[record.Meta](result.Current[0])
	if err != nil {
		return err
	}
	if have.ID != f.Cluster {
		return api.Faultf(api.Conflict,
			"create cluster %s: etcd already has a cluster with this name, of %s: join it with "+
				"a token of one of its nodes, or choose another name with --name", f.ClusterName,
			have.Created.Format("2006-01-02"))
	}
	return nil // of an earlier attempt
}

// newNode returns the record of the first node.
func (m *Member) newNode(f file) (record.Node, error) {
	hash, err := trust.HashKey(&f.key.PublicKey)
	if err != nil {
		return record.Node{}, err
	}
	instance, err := standing{m}.instanceOf(f)
	return record.Node{ID: f.Node, Name: f.Name, Addresses: f.Addresses, MTU: m.cfg.mtu(f.Addresses, 0), Port: f.Port,
		Version: m.cfg.Version, Joined: m.cfg.Now().UTC(), KeyHash: hash, Instance: instance}, err
}

// nodeChanges puts a node's record and its name.
func nodeChanges(n record.Node) []kv.Change {
	return []kv.Change{
		{Key: record.Key(record.Nodes, n.ID), Value: record.Encode(n)},
		{Key: record.Key(record.NodeNames, n.Name), Value: record.Encode(record.NodeName{Node: n.ID})},
	}
}
