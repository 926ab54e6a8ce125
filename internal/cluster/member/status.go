package member

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/record"
)

// statusLimit is how long etcd's servers have to answer.
const statusLimit = 3 * time.Second

// Status returns the state of the cluster as this node sees it.
func (m *Member) Status(ctx context.Context) (api.ClusterStatus, error) {
	m.mu.Lock()
	f, store, snapshot, problems, needed := m.file, m.store, m.snapshot, m.problems, m.progress.needed
	failed := m.failed
	m.mu.Unlock()
	if f.Phase == phaseNone {
		return api.ClusterStatus{}, api.Faultf(api.NotFound, "this host belongs to no cluster: create one with "+
			"`fairlead cluster init`, or join one with `fairlead cluster join`")
	}
	s := api.ClusterStatus{Name: f.ClusterName, ID: f.Cluster, Node: f.Name, Nodes: []api.ClusterNodeStatus{}}
	if f.Phase != phaseMember {
		s.Problem = f.refuseOther(phaseNone).Error()
		return s, nil
	}
	if c, err := x509.ParseCertificate(f.Certificate); err == nil {
		s.CertificateExpires = c.NotAfter
	}
	if store != nil {
		ctx, cancel := context.WithTimeout(ctx, statusLimit)
		defer cancel()
		s.Etcd = store.Health(ctx)
	}
	switch {
	case failed != nil:
		s.Problem = fmt.Sprintf("this host is no working node, and tries to be one every %s: %v", startAgain, failed)
		return s, nil
	case snapshot == nil:
		s.Problem = "this host has no records of the cluster yet: it waits for etcd"
		return s, nil
	case !m.isMember(f.Node):
		s.Problem = "this host was removed from the cluster: run `fairlead cluster leave` on it"
	}
	nodes := nodesOf(snapshot)
	for _, id := range sortedKeys(nodes) {
		n := nodes[id]
		shown := api.ClusterNodeStatus{ID: n.ID, Name: n.Name, Addresses: n.Addresses, Port: n.Port, Version: n.Version,
			Joined: n.Joined, Drained: n.Drained}
		if a, alive, err := record.Get[record.Alive](snapshot, record.Key(record.Alives, id)); alive && err == nil {
			shown.Alive, shown.Since, shown.Problems = true, a.Since, a.Problems
			shown.Behind = max(0, needed-a.Revision)
		}
		if id == f.Node {
			shown.Behind, shown.Problems = 0, problems
		}
		s.Nodes = append(s.Nodes, shown)
	}
	for id, r := range removalsOf(snapshot) {
		s.Nodes = append(s.Nodes, api.ClusterNodeStatus{ID: id, Name: r.Name, Addresses: []netip.Addr{},
			Problems: []string{"its removal is not complete: repeat `fairlead cluster rm " + r.Name + "`"}})
	}
	return s, nil
}

// Accept accepts the records of a restored store.
func (m *Member) Accept(ctx context.Context) error {
	m.mu.Lock()
	store := m.store
	m.mu.Unlock()
	if store == nil {
		_, _, err := m.inCluster()
		return err
	}
	return store.Accept(ctx)
}
