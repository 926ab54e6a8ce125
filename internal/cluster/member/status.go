package member

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
)

// statusLimit is how long etcd's servers have to answer.
const statusLimit = 3 * time.Second

// The limits of questions about the progress of other nodes.
const (
	progressLimit = time.Second
	askedAtOnce   = 64
)

// Status returns the state of the cluster as this node sees it. It asks no other node; see AskNodes.
func (m *Member) Status(ctx context.Context) (api.ClusterStatus, error) {
	m.mu.Lock()
	f, store, snapshot, progress := m.file, m.store, m.snapshot, m.progress
	problems := standing{m}.problemsOfHost()
	failed, frozen := m.failed, m.frozen
	m.mu.Unlock()
	if f.Phase == phaseNone {
		return api.ClusterStatus{}, api.Faultf(api.NotFound, "this host belongs to no cluster: create one with "+
			"`fairlead cluster init`, or join one with `fairlead cluster join`")
	}
	s := api.ClusterStatus{Name: f.ClusterName, ID: f.Cluster, Node: f.Name, Frozen: frozen,
		Applied: progress.applied, LastChange: progress.needed, Nodes: []api.ClusterNodeStatus{}}
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
		s.Etcd = store.Health(ctx, probe(f.Node))
	}
	switch {
	case failed != nil:
		s.Problem = fmt.Sprintf("this host is no working node, and tries to be one every %s: %v", startAgain, failed)
		return s, nil
	case snapshot == nil:
		if s.Etcd.Frozen == "" {
			s.Problem = "this host has no records of the cluster yet: it waits for etcd"
		}
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
			shown.Alive, shown.Since, shown.Problems, shown.Frozen = true, a.Since, a.Problems, a.Frozen
		}
		if id == f.Node {
			shown.Answered, shown.Frozen, shown.Problems = true, cmp.Or(frozen, s.Etcd.Frozen), problems
		}
		shown.Problems = append(slices.Clone(shown.Problems), clonesOf(snapshot, id)...)
		s.Nodes = append(s.Nodes, shown)
	}
	for id, r := range removalsOf(snapshot) {
		s.Nodes = append(s.Nodes, api.ClusterNodeStatus{ID: id, Name: r.Name, Addresses: []netip.Addr{},
			Problems: []string{"its removal is not complete: repeat `fairlead cluster rm " + r.Name + "`"}})
	}
	return s, nil
}

// clonesOf returns the problems that other hosts have a node's state, too.
func clonesOf(s kv.Snapshot, node string) (problems []string) {
	for _, c := range record.Each[record.Clone](s, record.Key(record.Clones, node, "")) {
		at := "no address"
		if len(c.Addresses) > 0 {
			at = "the addresses " + listed(c.Addresses[:min(len(c.Addresses), maxShown)])
		}
		problems = append(problems, fmt.Sprintf("another host with %s has a copy of this node's state since %s, and is "+
			"frozen: run `fairlead cluster leave --force` there", at, c.Since.Format(time.RFC3339)))
	}
	return problems
}

// AskNodes asks all nodes how far they are, and completes their states in a status of this node. Only people ask for
// that: if each node asked all others regularly, or wrote down how far it is, the cost would grow with the square
// of their number.
func (m *Member) AskNodes(ctx context.Context, s *api.ClusterStatus) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	own := m.pong()
	answers := make([]Pong, len(s.Nodes))
	turns := make(chan struct{}, askedAtOnce)
	var all sync.WaitGroup
	for i, n := range s.Nodes {
		if n.ID == own.Node {
			answers[i] = own
			continue
		}
		if n.Frozen != "" {
			continue // it has reported why, and does not have its address
		}
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			limited, cancel := context.WithTimeout(ctx, progressLimit)
			defer cancel()
			answers[i], _ = m.Ping(limited, n.ID) // a node that does not answer is shown as such
		})
	}
	all.Wait()
	compare(s.Nodes, answers)
}

// compare completes the states of nodes with their answers. What a frozen node knows may be from another store.
func compare(nodes []api.ClusterNodeStatus, answers []Pong) {
	var needed int64
	for _, a := range answers {
		if a.Frozen == "" {
			needed = max(needed, a.Needed)
		}
	}
	for i, a := range answers {
		if n := &nodes[i]; a.Node == n.ID {
			n.Answered, n.Behind, n.Frozen = true, max(0, needed-a.Applied), cmp.Or(a.Frozen, n.Frozen)
		}
	}
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
