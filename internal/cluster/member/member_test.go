package member_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// limit is how long a test waits for what must happen.
const limit = 30 * time.Second

// world is a store and a network, in which the hosts have addresses of 192.0.2.0/24.
type world struct {
	*testing.T
	store  *kvtest.Store
	mu     sync.Mutex
	others map[string]*kvtest.Store // of clusters that are not named default
	ports  map[string]string        // the address of a node → the listener's
	// elsewhere has the stores at other URLs than the first one.
	elsewhere map[string]*kvtest.Store
	still     time.Time // the clock stands still, unless it is zero
	skew      time.Duration
}

func newWorld(t *testing.T) *world {
	return &world{T: t, store: kvtest.New(), others: map[string]*kvtest.Store{}, ports: map[string]string{},
		elsewhere: map[string]*kvtest.Store{}}
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.still.IsZero() {
		return w.still
	}
	return time.Now().Add(w.skew)
}

func (w *world) listen(_ context.Context, at netip.AddrPort) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		w.route(at.String(), l.Addr().String())
	}
	return listener{l}, err
}

// listener accepts connections of hosts, which have their own loopback addresses in the test's process.
type listener struct{ net.Listener }

// Accept returns a connection whose peer has its address in the world.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return accepted{c}, err
}

type accepted struct{ net.Conn }

// RemoteAddr returns 192.0.2.N for 127.0.0.N.
func (c accepted) RemoteAddr() net.Addr {
	peer, ok := c.Conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return c.Conn.RemoteAddr()
	}
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, peer.IP.To4()[3]), Port: peer.Port}
}

func (w *world) route(address, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports[address] = to
}

// listener waits until a node listens at the address, and returns where its listener is.
func (w *world) listener(address string) (to string) {
	w.until("a node at "+address, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		to = w.ports[address]
		return to != ""
	})
	return to
}

// dial connects from the host's address.
func (h *host) dial(ctx context.Context, network, address string) (net.Conn, error) {
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(h.n))}
	return (&net.Dialer{LocalAddr: from}).DialContext(ctx, network, h.listener(address))
}

// connection is a host's connection to the store.
type connection struct {
	*kvtest.Client
	host *host
}

// Commit commits a transaction, and calls the host's committing and committed.
func (c connection) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	c.host.mu.Lock()
	committing, committed := c.host.committing, c.host.committed
	c.host.mu.Unlock()
	if committing != nil {
		committing(t)
	}
	result, err := c.Client.Commit(ctx, t)
	if committed != nil && len(t.Then) > 0 {
		committed(t)
	}
	return result, err
}

func (connection) Health(context.Context) api.EtcdHealth { return api.EtcdHealth{Connected: true} }
func (connection) Accept(context.Context) error          { return nil }
func (connection) Close() error                          { return nil }

// Frozen returns why the host ignores the store.
func (c connection) Frozen() string {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	return c.host.frozen
}

// host is a host with a Member.
type host struct {
	*world
	*member.Member
	client *kvtest.Client
	dir    string
	n      int
	stop   func()

	seen    chan kv.Update
	left    bool
	noted   chan api.Event
	clients []string // attached
	mtu     atomic.Int64
	// released is true while the consumer has given up what other nodes can take over.
	released atomic.Bool
	// checks counts how often the host has read its MTU: once each time it may write about itself.
	checks atomic.Int64
	// committing and committed are called before transactions and after those that change keys, unless they are nil.
	committing, committed func(kv.Txn)
	// openError is the error of connecting to the store; consume is called with each update. Both may be nil.
	openError error
	frozen    string
	consume   func(kv.Update)
}

func (w *world) host(n int) *host {
	h := &host{world: w, client: w.store.Client(), dir: filepath.Join(w.TempDir(), "cluster"), n: n,
		seen: make(chan kv.Update, 1000), noted: make(chan api.Event, 1000)}
	h.start()
	w.Cleanup(func() { h.stop() })
	return h
}

// storeOf returns the host's connection to the store of a cluster. The caller has the lock.
func (h *host) storeOf(cluster string) *kvtest.Client {
	if cluster == "default" {
		return h.client
	}
	if h.others[cluster] == nil {
		h.others[cluster] = kvtest.New()
	}
	return h.others[cluster].Client()
}

// consumer records what a host's consumers get.
type consumer struct{ *host }

// Update implements member.Consumer.
func (h consumer) Update(_ context.Context, _ member.Self, u kv.Update) []string {
	h.mu.Lock()
	consume := h.consume
	h.mu.Unlock()
	if consume != nil {
		consume(u)
	}
	h.seen <- u
	return []string{"network web: it is only a test"}
}

// Leave implements member.Consumer.
func (h consumer) Leave() error { h.left = true; return nil }

// Release implements member.Releaser.
func (h consumer) Release(context.Context) { h.released.Store(true) }

// Resume implements member.Releaser.
func (h consumer) Resume() { h.released.Store(false) }

// start starts the Member of another process.
func (h *host) start() {
	h.Helper()
	m, err := member.New(member.Config{Dir: h.dir, Version: "1.2.3", Host: fmt.Sprint("host", h.n),
		Open: func(access api.EtcdAccess, cluster, _, _ string) (member.Store, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if s := h.elsewhere[access.Endpoints[0]]; s != nil {
				return connection{s.Client(), h}, nil
			}
			return connection{h.storeOf(cluster), h}, h.openError
		},
		Listen: h.listen, Dial: h.dial,
		MTU:       func([]netip.Addr) (int, error) { h.checks.Add(1); return int(h.mtu.Load()), nil },
		Consumers: []member.Consumer{consumer{h}},
		Attached:  func() []string { return h.clients },
		Note:      func(e api.Event) { h.noted <- e }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: h.now})
	if err != nil {
		h.Fatal(err)
	}
	m.Answer("echo", func(_ context.Context, from string, q json.RawMessage) (any, error) {
		return fmt.Sprintf("%s asked %s", from, q), nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	h.Member = m
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.Error(err)
		}
	})
}

func (h *host) node() api.ClusterNode {
	return api.ClusterNode{Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(h.n)})}}
}

func (h *host) init() error {
	return h.Init(h.Context(), api.ClusterInit{Etcd: api.EtcdAccess{Endpoints: []string{"https://192.0.2.99:2379"}},
		ClusterNode: h.node()})
}

func (h *host) join(token string) error {
	return h.Join(h.Context(), api.ClusterJoin{Token: token, ClusterNode: h.node()})
}

// token returns the text of a new token.
func (h *host) token(r api.ClusterTokenRequest) string {
	h.Helper()
	var text string
	h.until("a token", func() bool {
		t, err := h.CreateToken(h.Context(), r)
		text = t.Text
		return err == nil
	})
	return text
}

// until waits for a condition.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("timeout: %s", what)
		}
	}
}

// names returns the names of the nodes that the host knows.
func (h *host) names() string {
	s, err := h.Status(h.Context())
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

func (h *host) knows(names string) {
	h.Helper()
	h.until(fmt.Sprintf("host %d knows %s", h.n, names), func() bool { return h.names() == names })
}

func (w *world) three() (one, two, three *host) {
	w.Helper()
	one, two, three = w.host(1), w.host(2), w.host(3)
	if err := one.init(); err != nil {
		w.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{Uses: 2})
	for _, h := range []*host{two, three} {
		if err := h.join(token); err != nil {
			w.Fatal(err)
		}
	}
	for _, h := range []*host{one, two, three} {
		h.knows("host1 host2 host3")
	}
	return one, two, three
}

// id returns the id of a host.
func (h *host) id() string {
	s, _ := h.Status(h.Context())
	for _, n := range s.Nodes {
		if n.Name == s.Node {
			return n.ID
		}
	}
	return ""
}

func (h *host) refuses(what string, err error, code api.Code, text string) {
	h.Helper()
	if err == nil || api.CodeOf(err) != code || !strings.Contains(err.Error(), text) {
		h.Errorf("%s: %v, want code %s and %q", what, err, code, text)
	}
}

// TestThreeHosts makes a cluster of three hosts, which ask each other, drain, and leave.
func TestThreeHosts(t *testing.T) {
	one, two, three := newWorld(t).three()
	var said string
	one.until("the node answers", func() bool { return one.Peer(t.Context(), two.id(), "echo", "x", &said) == nil })
	if said != one.id()+` asked "x"` {
		t.Errorf("the answer is %q", said)
	}
	pong, err := three.Ping(t.Context(), one.id())
	if err != nil || pong.Name != "host1" || pong.Format != record.Format {
		t.Errorf("ping: %v, %v", pong, err)
	}
	if u := <-two.seen; u.Snapshot == nil || len(u.Changed) == 0 {
		t.Errorf("the consumer got %v", u)
	}
	two.until("the nodes are alive with their problems", func() bool {
		s, err := two.Status(t.Context())
		for _, n := range s.Nodes {
			if err != nil || !n.Alive || len(n.Problems) != 1 {
				return false
			}
		}
		return true
	})
	if err := three.Drain(t.Context(), api.ClusterNodeRequest{Node: "host2"}); err != nil {
		t.Fatal(err)
	}
	one.until("host2 is drained", func() bool { s, _ := one.Status(t.Context()); return s.Nodes[1].Drained })
	if err := three.Drain(t.Context(), api.ClusterNodeRequest{Node: "host2", Undo: true}); err != nil {
		t.Fatal(err)
	}
	one.until("host2 is enabled", func() bool { s, _ := one.Status(t.Context()); return !s.Nodes[1].Drained })
	one.refuses("an unknown node", one.Drain(t.Context(), api.ClusterNodeRequest{Node: "host9"}), api.NotFound,
		"it has host1, host2, host3")

	two.clients = []string{"web"}
	_, err = two.Leave(t.Context(), api.ClusterNodeRequest{})
	two.refuses("leave with attachments", err, api.Conflict, "web is attached")
	two.clients = nil
	if _, err := two.Leave(t.Context(), api.ClusterNodeRequest{}); err != nil || !two.left || two.Joined() {
		t.Errorf("leave: %v", err)
	}
	if _, err := os.Stat(two.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a host that left: %v", err)
	}
	one.knows("host1 host3")
	if err := two.join(one.token(api.ClusterTokenRequest{})); err != nil {
		t.Errorf("join again: %v", err)
	}
	one.knows("host1 host2 host3")
	for _, h := range []*host{one, two, three} {
		if _, err := h.Leave(t.Context(), api.ClusterNodeRequest{}); err != nil {
			t.Errorf("host %d leaves: %v", h.n, err)
		}
	}
	for e := range one.store.Snapshot().Under("") {
		t.Errorf("the store still has %s", e.Key)
	}
}

// TestMTU joins hosts and changes the MTU of their links. Their records must have it from the beginning, and
// keep the earlier one while it is not known.
func TestMTU(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	one.mtu.Store(1500)
	two.mtu.Store(1400)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	if err := two.join(one.token(api.ClusterTokenRequest{})); err != nil {
		t.Fatal(err)
	}
	two.knows("host1 host2")
	get := func(h *host) kv.Entry {
		e, _ := w.store.Snapshot().Get(record.Key(record.Nodes, h.id()))
		return e
	}
	has := func(h *host, want int) bool {
		n, err := record.Decode[record.Node](get(h))
		return err == nil && n.MTU == want
	}
	w.until("the first records of the nodes have their MTU", func() bool { return has(one, 1500) && has(two, 1400) })
	two.mtu.Store(0)
	first := get(one)
	if err := one.Drain(t.Context(), api.ClusterNodeRequest{Node: "host1"}); err != nil {
		t.Fatal(err)
	}
	one.mtu.Store(9000)
	w.until("the record of host1 has its MTU", func() bool { return has(one, 9000) })
	n, err := record.Decode[record.Node](get(one))
	if err != nil || !n.Drained {
		t.Errorf("the record of host1 was %s and is %s", first.Value, get(one).Value)
	}
	unknown := get(two)
	two.mtu.Store(1300)
	w.until("the record of host2 has its MTU", func() bool { return has(two, 1300) })
	if n, err := record.Decode[record.Node](unknown); err != nil || n.MTU != 1400 {
		t.Errorf("while its MTU was not known, the record of host2 was %s", unknown.Value)
	}
}

// TestTokens joins with tokens that are used, expired, removed and wrong.
func TestTokens(t *testing.T) {
	w := newWorld(t)
	one, two, three := w.host(1), w.host(2), w.host(3)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	used := one.token(api.ClusterTokenRequest{})
	if err := two.join(used); err != nil {
		t.Fatal(err)
	}
	three.refuses("a used token", three.join(used), api.Invalid, "was used")
	parsed, err := trust.ParseToken(used)
	if err != nil {
		t.Fatal(err)
	}
	parsed.Secret[0] ^= 1
	three.refuses("a wrong secret", three.join(parsed.String()), api.Invalid, "is wrong")
	three.refuses("an altered token", three.join(used[:len(used)-1]), api.Invalid, "copy it again")
	fresh := one.token(api.ClusterTokenRequest{Life: time.Minute})
	w.mu.Lock()
	w.skew = 2 * time.Minute
	w.mu.Unlock()
	three.refuses("an expired token", three.join(fresh), api.Invalid, "has expired")
	token, err := one.CreateToken(t.Context(), api.ClusterTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	one.until("the token is listed alone", func() bool {
		all, err := one.Tokens()
		return err == nil && len(all) == 1 && all[0].ID == token.ID && all[0].Text == ""
	})
	if err := one.RemoveToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	three.refuses("a removed token", three.join(token.Text), api.Invalid, "is wrong")
	one.until("it is not listed", func() bool { all, _ := one.Tokens(); return len(all) == 0 })
	one.refuses("remove it again", one.RemoveToken(t.Context(), token.ID), api.NotFound, "there is no token")
	if err := three.join(one.token(api.ClusterTokenRequest{})); err != nil {
		t.Errorf("a good token after the bad ones: %v", err)
	}
}

// TestManInTheMiddle joins while another cluster's node answers at the address. It must not get the
// secret.
func TestManInTheMiddle(t *testing.T) {
	w, theirs := newWorld(t), newWorld(t)
	one, evil, two := w.host(1), theirs.host(1), w.host(2)
	if err := errors.Join(one.init(), evil.init()); err != nil {
		t.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{})
	evil.token(api.ClusterTokenRequest{})
	honest := w.listener("192.0.2.1:7947")
	w.route("192.0.2.1:7947", theirs.listener("192.0.2.1:7947"))
	if err := two.join(token); err == nil || !strings.Contains(err.Error(), "not of the cluster of the join token") {
		t.Errorf("join through another host: %v", err)
	}
	w.route("192.0.2.1:7947", honest)
	if err := two.join(token); err != nil { // the token was not used
		t.Error(err)
	}
}

// TestNames refuses a name that another node has, and a host that belongs to a cluster already.
func TestNames(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	token := one.token(api.ClusterTokenRequest{})
	node := two.node()
	node.Node = "host1"
	two.refuses("a name that is taken", two.Join(t.Context(), api.ClusterJoin{Token: token, ClusterNode: node}),
		api.Conflict, "another node host1")
	one.refuses("join as a member", one.join(token), api.Conflict, "already belongs to cluster default")
	one.refuses("init as a member", one.init(), api.Conflict, "already belongs to cluster default")
	two.refuses("init while joining", two.init(), api.Conflict, "joining a cluster was interrupted")
	if err := two.join(token); err != nil {
		t.Error(err)
	}
	three := w.host(3)
	three.refuses("a second cluster with the name", three.init(), api.Conflict, "etcd already has a cluster")
	for _, address := range []string{"127.0.0.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1%eth0"} {
		err := w.host(4).Init(t.Context(), api.ClusterInit{Etcd: api.EtcdAccess{Endpoints: []string{"http://x:1"}},
			ClusterNode: api.ClusterNode{Addresses: []netip.Addr{netip.MustParseAddr(address)}}})
		one.refuses("address "+address, err, api.Invalid, "by which the other hosts")
	}
}

// TestInterrupted loses the answers of etcd and of the node while a cluster is created and joined. A
// later attempt of another process completes it, with the same token.
func TestInterrupted(t *testing.T) {
	w := newWorld(t)
	one, two := w.host(1), w.host(2)
	one.client.Set(kvtest.AnswerLost)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := one.Init(ctx, api.ClusterInit{Etcd: api.EtcdAccess{Endpoints: []string{"http://x:1"}},
		ClusterNode: one.node()})
	if !errors.Is(err, kv.ErrUnknown) {
		t.Fatalf("init without an answer: %v", err)
	}
	one.client.Set(kvtest.Works)
	one.stop()
	one.start()
	if one.Joined() {
		t.Error("the host is a member without etcd's answer")
	}
	if err := one.init(); err != nil {
		t.Fatalf("init again: %v", err)
	}
	token := one.token(api.ClusterTokenRequest{})
	// The host ends its request when it has been admitted, before it gets the answer.
	ctx, cancel = context.WithCancel(t.Context())
	failed := make(chan struct{})
	w.mu.Lock()
	one.committed = func(t kv.Txn) {
		if strings.HasPrefix(t.Then[0].Key, record.Nodes) {
			cancel()
			<-failed
		}
	}
	w.mu.Unlock()
	err = two.Join(ctx, api.ClusterJoin{Token: token, ClusterNode: two.node()})
	close(failed)
	if _, admitted := w.store.Snapshot().Get(record.Key(record.NodeNames, "host2")); err == nil || !admitted {
		t.Fatalf("join without an answer: %v, and the node is admitted: %v", err, admitted)
	}
	two.stop()
	two.start()
	if err := two.join(token); err != nil {
		t.Fatalf("join again with the same token: %v", err)
	}
	two.knows("host1 host2")
	one.until("the token that was used is not listed", func() bool {
		all, err := one.Tokens()
		return err == nil && len(all) == 0
	})
}

// TestRemove removes a node. Its certificate is refused from then on, and it passes nothing on.
func TestRemove(t *testing.T) {
	one, two, three := newWorld(t).three()
	id := two.id()
	put := func(key string, v []byte) {
		t.Helper()
		if _, err := one.client.Commit(t.Context(), kv.Txn{Then: []kv.Change{{Key: key, Value: v}}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 300 {
		put(fmt.Sprintf("blocks/web/10.0.%d.0/28", n), record.Encode(record.Block{Node: id}))
	}
	put("blocks/web/10.9.0.0/28", record.Encode(record.Block{Node: one.id()}))
	put("eps/web/"+id+"/a", record.Encode(record.Endpoint{}))
	put("reals/web/"+id+"/a", record.Encode(record.Real{}))
	put("last", []byte("x"))
	one.until("host1 has all", func() bool {
		for u := range one.seen {
			if _, known := u.Snapshot.Get("last"); known {
				return true
			}
		}
		return false
	})
	one.until("host2 is alive", func() bool { s, _ := one.Status(t.Context()); return s.Nodes[1].Alive })
	one.refuses("remove a node that is alive", one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2"}),
		api.Conflict, "is alive")
	one.refuses("remove itself", one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host1", Force: true}),
		api.Conflict, "cluster leave")
	if err := one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2", Force: true}); err != nil {
		t.Fatal(err)
	}
	three.knows("host1 host3")
	var keys []string
	for e := range one.store.Snapshot().Under("") {
		if strings.Contains(string(e.Value), id) || strings.Contains(e.Key, id) {
			keys = append(keys, e.Key)
		}
	}
	if _, known := one.store.Snapshot().Get("blocks/web/10.9.0.0/28"); len(keys) > 0 || !known {
		t.Errorf("the store still has %v of the node, and the block of another node: %v", keys, known)
	}
	two.until("host2 notices", func() bool {
		s, _ := two.Status(t.Context())
		return strings.Contains(s.Problem, "was removed from the cluster")
	})
	// The removed host asks with its certificate, which is still valid.
	if err := askAs(two, "192.0.2.3:7947"); err == nil {
		t.Error("a removed node is answered")
	}
	if _, err := two.Leave(t.Context(), api.ClusterNodeRequest{}); err != nil {
		t.Errorf("the removed host leaves: %v", err)
	}
	three.knows("host1 host3")
}

// TestRemoveRace removes a node while another administrator has removed it and a third node has claimed
// one of its blocks and its name.
func TestRemoveRace(t *testing.T) {
	one, two, three := newWorld(t).three()
	id, heir := two.id(), three.id()
	var blocks kv.Txn
	for n := range 120 {
		blocks.Then = append(blocks.Then, kv.Change{Key: fmt.Sprintf("blocks/web/10.0.%d.0/28", 100+n),
			Value: record.Encode(record.Block{Node: id})})
	}
	if _, err := one.client.Commit(t.Context(), blocks); err != nil {
		t.Fatal(err)
	}
	one.until("host1 has the blocks", func() bool {
		_, known := (<-one.seen).Snapshot.Get("blocks/web/10.0.219.0/28")
		return known
	})
	claimed := []kv.Change{
		{Key: "blocks/web/10.0.219.0/28", Value: record.Encode(record.Block{Node: heir})},
		{Key: "names/host2", Value: record.Encode(record.NodeName{Node: heir})}}
	one.mu.Lock()
	claim := sync.OnceFunc(func() {
		_, _ = one.store.Client().Commit(context.Background(), kv.Txn{Then: claimed}) // it has no fault
	})
	one.committed = func(t kv.Txn) {
		if strings.HasPrefix(t.Then[0].Key, record.Blocks) {
			claim()
		}
	}
	one.mu.Unlock()
	_ = one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2", Force: true}) // it may have to be repeated
	for _, c := range claimed {
		if e, _ := one.store.Snapshot().Get(c.Key); string(e.Value) != string(c.Value) {
			t.Errorf("%s of another node has become %q", c.Key, e.Value)
		}
	}
	one.until("the repetition removes the node", func() bool {
		_ = one.Remove(t.Context(), api.ClusterNodeRequest{Node: "host2", Force: true})
		return one.names() == "host1 host3"
	})
}

// askAs sends a ping with the certificate in a host's directory, without verifying the other side.
func askAs(h *host, address string) error {
	pair, err := member.StoredCertificate(h.dir)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: h.dial, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}}
	r, err := client.Post("https://"+address+"/v1/ping", "application/json", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return errors.New(r.Status)
	}
	return nil
}

// TestHostilePeers sends what no node sends. The node survives, and answers the next one.
func TestHostilePeers(t *testing.T) {
	one, two, _ := newWorld(t).three()
	if err := askAs(two, "192.0.2.1:7947"); err != nil {
		t.Fatalf("a node with its certificate: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: one.dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for path, body := range map[string]string{"ping": "{}", "ask/echo": "{}", "join": "x", "join ": "",
		"join?": strings.Repeat("[", 100_000), "join?x": `{"node":"../..","name":"x"}`,
		"join?y": `{"format":1,"node":"0123456789abcdef","name":"x/y","port":1}`} {
		r, err := client.Post("https://192.0.2.1:7947/v1/"+strings.TrimSpace(path), "application/json",
			strings.NewReader(body))
		if err != nil {
			continue
		}
		if r.StatusCode == http.StatusOK {
			t.Errorf("%s %.20q is answered with %s", path, body, r.Status)
		}
		r.Body.Close()
	}
	var conns []net.Conn
	for range 200 {
		if c, err := one.dial(t.Context(), "tcp", "192.0.2.1:7947"); err == nil {
			conns = append(conns, c)
		}
	}
	for _, c := range conns {
		c.Close()
	}
	one.until("the node answers again", func() bool { return askAs(two, "192.0.2.1:7947") == nil })
}

// TestAway restarts a host while etcd does not answer, and changes nothing on it.
func TestAway(t *testing.T) {
	one, two, _ := newWorld(t).three()
	two.client.Set(kvtest.Refused)
	two.refuses("drain without etcd", two.Drain(t.Context(), api.ClusterNodeRequest{Node: "host1"}), api.Failed,
		kv.ErrUnavailable.Error())
	_, err := two.Leave(t.Context(), api.ClusterNodeRequest{})
	two.refuses("leave without etcd", err, api.Failed, "--force")
	if !two.Joined() || two.left {
		t.Error("the host has left without etcd")
	}
	two.stop()
	two.start()
	if !two.Joined() || two.left {
		t.Error("after a restart the host is no member")
	}
	two.client.Set(kvtest.Works)
	two.knows("host1 host2 host3")
	two.client.Set(kvtest.Refused)
	notes, err := two.Leave(t.Context(), api.ClusterNodeRequest{Force: true})
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "fairlead cluster rm host2") || !two.left {
		t.Errorf("leave with force: %q, %v", notes, err)
	}
	if one.names() != "host1 host2 host3" {
		t.Errorf("host1 has %s", one.names())
	}
}

// TestFiles checks that only the owner can read the node's keys.
func TestFiles(t *testing.T) {
	one := newWorld(t).host(1)
	if err := one.init(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{one.dir: 0o700, filepath.Join(one.dir, "member.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}
