package networks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/block"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/networks"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// host is a daemon without a host.
type host struct {
	id       string
	changed  chan struct{}
	mu       sync.Mutex
	networks []model.Network
	attached []api.View
	// views counts how often all attachments were read.
	views int
	// before, if it is not nil, is called before networks are set, and seen gets them afterwards.
	before func()
	seen   func([]model.Network)
	// applies counts how often networks were set, and refused are the problems of that.
	applies int
	refused []string
	// late, if it is not nil, delays the updates of the node until it is closed.
	late chan struct{}
	// report reports an event of a container, as its engine does.
	report func(sandbox.ContainerEvent)
}

// FollowContainers implements networks.Containers.
func (h *host) FollowContainers(ctx context.Context, notify func(sandbox.ContainerEvent)) {
	h.mu.Lock()
	h.report = notify
	h.mu.Unlock()
	<-ctx.Done()
}

func (h *host) SetCluster(networks []model.Network, _ []model.VirtualService) []string {
	if h.before != nil && len(networks) > 0 {
		h.before()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.networks = networks
	h.applies++
	if h.seen != nil && len(networks) > 0 {
		h.seen(networks)
	}
	return h.refused
}

func (h *host) LeaveCluster() error { h.SetCluster(nil, nil); return nil }

func (h *host) Networks() []model.Network {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.networks
}

func (h *host) Attachments() []api.View {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.views++
	return h.attached
}

// attach adds an attachment with an address to network web.
func (h *host) attach(name, addr string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := api.View{Status: api.Up}
	if name == "docker-1" {
		v.Ref = sandbox.EndpointRef + "1"
	}
	v.Endpoint = model.Endpoint{Name: name, Network: "web", Addresses: []netip.Addr{netip.MustParseAddr(addr)}}
	h.attached = append(slices.Clone(h.attached), v)
	h.note()
}

func (h *host) detach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attached = nil
	h.note()
}

func (h *host) note() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// world is a cluster with running nodes, in a bubble of synctest.
type world struct {
	*testing.T
	*kvtest.Store
	hosts   []*host
	clients []*kvtest.Client
	every   []*networks.Networks
	stop    map[int]context.CancelFunc
	// keys are the directories with the nodes' private keys.
	keys []string
	// silent is a node that does not answer, and frozen why all hosts are.
	silent, frozen string
}

// Peer implements networks.Peers.
func (w *world) Peer(ctx context.Context, id, kind string, question, into any) error {
	i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.id == id })
	if i < 0 || id == w.silent || kind != networks.AddressQuestion {
		return errors.New("no route to host")
	}
	text, err := json.Marshal(question)
	if err != nil {
		return err
	}
	answer, err := w.every[i].AnswerAddress(ctx, "", text)
	if err != nil {
		return err
	}
	text, err = json.Marshal(answer)
	return errors.Join(err, json.Unmarshal(text, into))
}

const (
	every  = time.Second
	keyAge = 30 * 24 * time.Hour
)

func newWorld(t *testing.T, nodes int) *world {
	w := &world{T: t, Store: kvtest.New(), stop: map[int]context.CancelFunc{}}
	for i := range nodes {
		id := fmt.Sprint("n", i)
		c := w.Client()
		w.hosts = append(w.hosts, &host{id: id, changed: make(chan struct{}, 1)})
		w.clients, w.every = append(w.clients, c), append(w.every, nil)
		w.put(c, record.Key(record.Nodes, id), record.Node{ID: id, Name: id,
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}})
		w.keys = append(w.keys, filepath.Join(w.TempDir(), "keys"))
		w.start(i)
	}
	return w
}

// start starts the node's daemon, in place of the earlier one if there is any.
func (w *world) start(node int) {
	if w.stop[node] != nil {
		w.stop[node]()
		synctest.Wait()
	}
	var ctx context.Context
	ctx, w.stop[node] = context.WithCancel(w.Context())
	h, c := w.hosts[node], w.clients[node]
	n := networks.New(networks.Config{Host: h, Keys: w.keys[node], Store: c, Peers: w, Containers: h,
		Frozen:  func() string { return w.frozen },
		Changed: h.changed, KeyAge: keyAge, Every: every,
		Log: slog.New(slog.DiscardHandler)})
	w.every[node] = n
	go n.Run(ctx)
	go func() {
		for u := range c.Updates(ctx) {
			h.mu.Lock()
			late := h.late
			h.mu.Unlock()
			if late != nil {
				<-late
			}
			n.Update(ctx, member.Self{Node: fmt.Sprint("n", node)}, u)
		}
	}()
}

func (w *world) put(c *kvtest.Client, key string, v any) {
	w.Helper()
	if _, err := c.Commit(w.Context(), kv.Txn{Then: []kv.Change{{Key: key, Value: record.Encode(v)}}}); err != nil {
		w.Fatal(err)
	}
}

// create creates overlay web with blocks of 16 addresses.
func (w *world) create() {
	w.Helper()
	n := model.Network{Name: "web", Driver: model.DriverVXLAN,
		Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}
	if err := block.Create(w.Context(), w.Client(), w.Snapshot(), n, []int{28}); err != nil {
		w.Fatal(err)
	}
}

// settle lets all nodes do what they have to do.
func (w *world) settle() {
	time.Sleep(5 * every) // of the bubble's clock
	synctest.Wait()
}

// ranges returns the node's own ranges in its network web.
func (w *world) ranges(node int) []netip.Prefix {
	w.Helper()
	all := w.hosts[node].Networks()
	if len(all) != 1 || len(all[0].Overlay.Peers) != len(w.hosts) {
		w.Fatalf("node %d has the networks %+v", node, all)
	}
	return all[0].Overlay.Peers[node].Ranges
}

// TestNodesGetBlocks creates a network: each node gets a block, and further ones when it is nearly
// full. Without etcd the node keeps all.
func TestNodesGetBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.create()
		w.settle()
		first := w.ranges(0)
		if len(first) != 1 || len(w.ranges(1)) != 1 || first[0].Overlaps(w.ranges(1)[0]) || first[0].Bits() != 28 {
			t.Fatalf("the nodes have %v and %v", first, w.ranges(1))
		}
		w.clients[0].Set(kvtest.Refused)
		a := first[0].Addr()
		for i := range 12 {
			a = a.Next()
			w.hosts[0].attach(fmt.Sprint("box", i), a.String())
		}
		w.settle()
		if got := w.ranges(0); !slices.Equal(got, first) {
			t.Errorf("without etcd the node has %v", got)
		}
		w.clients[0].Set(kvtest.Works)
		w.settle()
		got := w.ranges(0)
		if len(got) != 2 || got[0] != first[0] || got[0].Overlaps(got[1]) || len(w.ranges(1)) != 1 {
			t.Errorf("a node whose block is nearly full has %v, and another node %v", got, w.ranges(1))
		}
	})
}

// TestHostileRecords writes records that no node writes. The nodes report them and keep the others.
func TestHostileRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		for name, bits := range map[string][]int{"long": {200}, "negative": {-3}, "short": {1}, "none": nil} {
			w.put(w.clients[0], record.Key(record.Networks, name), record.Network{BlockBits: bits,
				Spec: model.Network{Name: name, Driver: model.DriverVXLAN,
					Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.8.0.0/16")}}}})
		}
		w.put(w.clients[0], record.Key(record.Networks, "empty"), record.Network{BlockBits: []int{24},
			Spec: model.Network{Name: "empty", Driver: model.DriverVXLAN, Subnets: make([]model.Subnet, 1)}})
		w.create()
		w.settle()
		if got := w.ranges(0); len(got) != 1 {
			t.Errorf("beside hostile records a node has %v", got)
		}
	})
}

// TestEndpointsArePublished compares the records of endpoints with the attachments, also after those
// changed while etcd did not answer.
func TestEndpointsArePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.create()
		w.settle()
		w.hosts[0].attach("shop", "10.9.0.7")
		w.hosts[1].attach("db", "10.9.1.7")
		synctest.Wait() // without the time after which transactions are repeated
		for key, addr := range map[string]string{"eps/web/n0/shop": "10.9.0.7", "eps/web/n1/db": "10.9.1.7"} {
			e, _, err := record.Get[record.Endpoint](w.Snapshot(), key)
			if err != nil || len(e.Names) != 1 || fmt.Sprint(e.Addresses) != "["+addr+"]" {
				t.Errorf("record %s is %+v, %v", key, e, err)
			}
		}
		w.clients[0].Set(kvtest.RequestLost)
		w.hosts[0].detach()
		w.settle()
		w.clients[0].Set(kvtest.Works)
		w.settle()
		if _, left := w.Snapshot().Get("eps/web/n0/shop"); left {
			t.Error("the record of a detached sandbox stays")
		}
		if _, has := w.Snapshot().Get("eps/web/n1/db"); !has {
			t.Error("a node deleted the record of another")
		}
	})
}

// TestNamesOfContainers publishes a container by the names that its engine reports, and not by that of
// its attachment. A restarted daemon keeps the names until its engine answers.
func TestNamesOfContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.create()
		w.settle()
		names := func() string {
			t.Helper()
			w.settle()
			e, _, err := record.Get[record.Endpoint](w.Snapshot(), "eps/web/n0/docker-1")
			if err != nil {
				t.Error(err)
			}
			return strings.Join(e.Names, " ")
		}
		w.hosts[0].attach("docker-1", "10.9.0.7")
		if got := names(); got != "" {
			t.Errorf("before its engine answers, the container has the names %s", got)
		}
		event := sandbox.ContainerEvent{Refs: []string{"container:shop", "docker:1"}, Name: "shop",
			EndpointNames: map[string][]string{"docker:1": {"api", "shop"}}}
		w.hosts[0].report(event)
		if got := names(); got != "api shop" {
			t.Errorf("the container has the names %s", got)
		}
		w.start(0)
		if got := names(); got != "api shop" {
			t.Errorf("after a restart of the daemon the container has the names %s", got)
		}
		event.EndpointNames = map[string][]string{"docker:1": {"store"}}
		w.hosts[0].report(event)
		if got := names(); got != "store" {
			t.Errorf("after it was renamed the container has the names %s", got)
		}
		w.hosts[0].detach()
		if got := names(); got != "" {
			t.Errorf("after it has ended the container has the names %s", got)
		}
	})
}

// TestKeys creates an encrypted network: each node publishes a public key, and keeps the private one to
// itself. A node that loses its key gets another one. The keys end with the network.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		n := model.Network{Name: "web", Driver: model.DriverVXLAN, Overlay: model.Overlay{Encrypt: true},
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}
		if err := block.Create(w.Context(), w.Client(), w.Snapshot(), n, nil); err != nil {
			t.Fatal(err)
		}
		w.settle()
		file := filepath.Join(w.keys[0], "web.key")
		private, err := os.ReadFile(file)
		info, _ := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the private key: %v, mode %v", err, info)
		}
		for e := range w.Snapshot().Under("") {
			if strings.Contains(string(e.Value), strings.TrimSpace(string(private))) {
				t.Errorf("the store has the private key: %s", e.Key)
			}
		}
		first := w.peers(1)
		if all := w.hosts[0].Networks(); all[0].Overlay.KeyFile != file || !slices.Equal(w.peers(0), first) ||
			len(first) != 2 || first[0] == first[1] {
			t.Errorf("the nodes have %+v, and the public keys %v and %v", all, w.peers(0), first)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		w.start(0)
		w.settle()
		if now := w.peers(1); now[0] == first[0] || now[1] != first[1] {
			t.Errorf("after a node has lost its key the keys are %v, and were %v", now, first)
		}
		if err := os.Link(file, file+".new"); err != nil { // a daemon was killed while it replaced the key
			t.Fatal(err)
		}
		if err := block.Remove(w.Context(), w.Client(), w.Snapshot(), "web"); err != nil {
			t.Fatal(err)
		}
		w.settle()
		for e := range w.Snapshot().Under(record.Keys) {
			t.Errorf("the removed network leaves %s", e.Key)
		}
		if left, _ := os.ReadDir(w.keys[0]); len(left) > 0 {
			t.Errorf("the removed network leaves %v", left)
		}
	})
}

// peers returns the public keys of the peers in the node's network web.
func (w *world) peers(node int) (keys []string) {
	w.Helper()
	for _, n := range w.hosts[node].Networks() {
		for _, p := range n.Overlay.Peers {
			keys = append(keys, p.PublicKey)
		}
	}
	return keys
}

// TestDrainedNodeClaimsNothing drains a node before a network is created, and lets another leave.
func TestDrainedNodeClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.put(w.clients[0], "nodes/n0", record.Node{ID: "n0", Name: "n0", Drained: true})
		w.create()
		w.settle()
		if own := block.Own(w.Snapshot(), "web", "n0"); len(own) > 0 {
			t.Errorf("a drained node claims %v", own)
		}
		if err := w.every[1].Leave(); err != nil || len(w.hosts[1].Networks()) > 0 {
			t.Errorf("after leaving, the host has %v: %v", w.hosts[1].Networks(), err)
		}
	})
}

// TestLeaveWhileNetworksChange leaves the cluster while the host's networks are applied. It must not have them
// afterwards.
func TestLeaveWhileNetworksChange(t *testing.T) {
	store, h := kvtest.New(), &host{}
	n := networks.New(networks.Config{Host: h, Keys: t.TempDir(), Store: store.Client(),
		Log: slog.New(slog.DiscardHandler)})
	s := kv.NewTable(1, []kv.Entry{
		{Key: "nodes/n0", Revision: 1, Value: record.Encode(record.Node{ID: "n0", Name: "n0",
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})},
		{Key: "nets/web", Revision: 1, Value: record.Encode(record.Network{BlockBits: []int{28}, Spec: model.Network{
			Name: "web", Driver: model.DriverVXLAN, Overlay: model.Overlay{VNI: 1},
			Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}})},
		{Key: "blocks/web/10.9.0.0/28", Revision: 1, Value: record.Encode(record.Block{Node: "n0", Sequence: 1})}})
	left, applied := make(chan error, 1), false
	h.before = func() {
		applied = true
		go func() { left <- n.Leave() }()
		select { // without a lock, it ends here
		case err := <-left:
			left <- err
		case <-time.After(50 * time.Millisecond):
		}
	}
	n.Update(t.Context(), member.Self{Node: "n0"}, kv.Update{Snapshot: s, Changed: kv.Diff(kv.NewTable(0, nil), s)})
	if err := <-left; err != nil || !applied || len(h.Networks()) > 0 {
		t.Errorf("after leaving, the host has %+v: %v", h.Networks(), err)
	}
}
