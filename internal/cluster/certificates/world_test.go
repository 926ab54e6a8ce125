package certificates_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"fairlead/internal/cluster/certificates"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
	"fairlead/internal/model/gateway"
)

// The lock of certificate a, and its value.
const lockA, valueA = "le/certificates/a", "le/certificates/a"

// world is a cluster with three nodes, whose ids are 1 to 3.
type world struct {
	*testing.T
	store *kvtest.Store
	key   []byte
	nodes []*node
}

// node is a node with a gateway.
type node struct {
	*certificates.Certificates
	*kvtest.Client
	world *world
	id    string
	// gate, if it is not nil, stops transactions until it is closed.
	gate chan struct{}
	// away ends the questions of other nodes with an error.
	away bool
	// late, if it is not nil, delays the node's snapshots until it is closed.
	late chan struct{}

	mu       sync.Mutex
	problems []string
	// calls has a value for each call of the gateway.
	calls chan []string
	// slow, if it is not nil, stops the gateway until it is closed.
	slow chan struct{}
}

// Commit implements kv.Committer.
func (n *node) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	n.mu.Lock()
	gate := n.gate
	n.mu.Unlock()
	if gate != nil {
		<-gate
		ctx = context.WithoutCancel(ctx) // the process was stopped: no time has passed for it
	}
	return n.Client.Commit(ctx, t)
}

// Peer implements certificates.Peers.
func (n *node) Peer(ctx context.Context, id, kind string, q, into any) error {
	to := n.world.nodes[id[0]-'1']
	to.mu.Lock()
	away := to.away
	to.mu.Unlock()
	if away || kind != certificates.Question {
		return errors.New("no answer")
	}
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	a, err := to.Answer(ctx, n.id, text)
	if err != nil {
		return err
	}
	text, err = json.Marshal(a)
	return errors.Join(err, json.Unmarshal(text, into))
}

func (n *node) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// changed is the gateway.
func (n *node) changed(_ context.Context, keys []string) error {
	n.mu.Lock()
	slow := n.slow
	n.mu.Unlock()
	if slow != nil {
		<-slow
	}
	n.calls <- keys
	return nil
}

// inWorld runs a test in a cluster whose time is that of the test.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, store: kvtest.New(), key: trust.NewClusterKey()}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer func() { cancel(); running.Wait() }()
		for i := range 3 {
			w.nodes = append(w.nodes, w.node(ctx, &running, fmt.Sprint(i+1)))
		}
		synctest.Wait()
		test(t, w)
	})
}

func (w *world) node(ctx context.Context, running *sync.WaitGroup, id string) *node {
	n := &node{Client: w.store.Client(), world: w, id: id, calls: make(chan []string, 1000)}
	self := member.Self{Cluster: "c", Node: id, Name: "host" + id}
	_, err := n.Client.Commit(ctx, kv.Txn{Then: []kv.Change{
		{Key: record.Key(record.Nodes, id), Value: record.Encode(record.Node{ID: id, Name: self.Name})},
		{Key: record.Key(record.Alives, id), Value: record.Encode(record.Alive{}), Leased: true}}})
	if err != nil {
		w.Fatal(err)
	}
	n.Certificates = certificates.New(certificates.Config{Store: n, Peers: n, Log: slog.New(slog.DiscardHandler),
		Box:    func() (*trust.Box, error) { return trust.NewBox(w.key, "c", certificates.Purpose) },
		Recall: func() (certificates.Recalled, error) { return certificates.Recalled{}, nil }})
	n.Follow(n.changed)
	running.Go(func() { n.Run(ctx) })
	running.Go(func() {
		for u := range n.Updates(ctx) {
			n.mu.Lock()
			late := n.late
			n.mu.Unlock()
			if late != nil {
				<-late
			}
			problems := n.Update(ctx, self, u)
			n.set(func() { n.problems = problems })
		}
	})
	return n
}

// take takes a lock that is free.
func (n *node) take(name string) (held context.Context, interrupted int) {
	n.world.Helper()
	held, interrupted, err := n.Try(n.world.Context(), name)
	if err != nil {
		n.world.Fatalf("%s takes %s: %v", n.id, name, err)
	}
	return held, interrupted
}

// has checks the value that a node reads.
func (n *node) has(key, want string) {
	n.world.Helper()
	synctest.Wait()
	got, err := n.Load(n.world.Context(), key)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil || string(got) != want {
		n.world.Errorf("%s reads %q, %v; want %q", n.id, got, err, want)
	}
}

// store stores a value under a lock that the node has.
func (n *node) put(key, value string) {
	n.world.Helper()
	if err := n.Store(n.world.Context(), key, []byte(value)); err != nil {
		n.world.Fatal(err)
	}
}

// refused checks that another node has a lock. The node may have to see the lock's record first: without it,
// the node tries again soon, and not when the lock lapses.
func (n *node) refused(name, holder string) {
	n.world.Helper()
	synctest.Wait()
	var busy gateway.Busy
	if _, _, err := n.Try(n.world.Context(), name); !errors.As(err, &busy) || busy.Host != holder {
		n.world.Errorf("%s takes %s: %v, want that %s has it", n.id, name, err, holder)
	}
}

// drain forgets the calls of the gateway.
func (n *node) drain() {
	synctest.Wait()
	for len(n.calls) > 0 {
		<-n.calls
	}
}
