package member_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
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

func (w *world) listen(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	l, err := member.Listen(ctx, netip.MustParseAddrPort("127.0.0.1:0"))
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
	if err != nil {
		return nil, err
	}
	return accepted{c.(*net.TCPConn)}, nil
}

type accepted struct{ *net.TCPConn }

// RemoteAddr returns 192.0.2.N for 127.0.0.N.
func (c accepted) RemoteAddr() net.Addr {
	peer, ok := c.TCPConn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return c.TCPConn.RemoteAddr()
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
	h.mu.Lock()
	silent := h.silent != "" && strings.HasPrefix(address, h.silent+":")
	h.mu.Unlock()
	if silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(h.n))}
	c, err := (&net.Dialer{LocalAddr: from}).DialContext(ctx, network, h.listener(address))
	h.mu.Lock()
	around := h.around
	h.around = nil
	h.mu.Unlock()
	if err == nil && around != nil {
		c = around(c)
	}
	return c, err
}

// connection is a host's connection to the store.
type connection struct {
	host *host

	mu     sync.Mutex
	client *kvtest.Client
	// moved is closed by Reconnect.
	moved chan struct{}
}

func (h *host) connect(c *kvtest.Client) *connection {
	return &connection{host: h, client: c, moved: make(chan struct{})}
}

func (c *connection) current() (*kvtest.Client, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client, c.moved
}

// Reconnect implements member.Store.
func (c *connection) Reconnect(access api.EtcdAccess) error {
	c.host.mu.Lock()
	s := c.host.elsewhere[access.Endpoints[0]]
	c.host.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = s.Client()
	close(c.moved)
	c.moved = make(chan struct{})
	return nil
}

// Updates sends those of the client, and of the next one after Reconnect.
func (c *connection) Updates(ctx context.Context) <-chan kv.Update {
	updates := make(chan kv.Update)
	go func() {
		defer close(updates)
		for ctx.Err() == nil {
			client, moved := c.current()
			limited, cancel := context.WithCancel(ctx)
			go func() {
				defer cancel()
				select {
				case <-moved:
				case <-limited.Done():
				}
			}()
			for u := range client.Updates(limited) {
				select {
				case updates <- u:
				case <-limited.Done():
				}
			}
			cancel()
		}
	}()
	return updates
}

// Commit commits a transaction, and calls the host's committing and committed.
func (c *connection) Commit(ctx context.Context, t kv.Txn) (kv.Result, error) {
	c.host.mu.Lock()
	committing, committed := c.host.committing, c.host.committed
	c.host.mu.Unlock()
	if committing != nil {
		committing(t)
	}
	client, _ := c.current()
	result, err := client.Commit(ctx, t)
	if committed != nil && len(t.Then) > 0 {
		committed(t)
	}
	return result, err
}

func (*connection) Health(context.Context, kv.Txn) api.EtcdHealth {
	return api.EtcdHealth{Connected: true}
}
func (*connection) Accept(context.Context) error { return nil }
func (*connection) Close() error                 { return nil }
func (*connection) Drop([]netip.Addr)            {}

// Frozen returns why the host ignores the store.
func (c *connection) Frozen() string {
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
	// run has the files that do not outlive the boot.
	run  string
	n    int
	stop func()

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
	// links are those of the host, and machine identifies it without hardware addresses.
	links   []member.Link
	machine string
	// around wraps the next connection to a node, unless it is nil.
	around func(net.Conn) net.Conn
	// silent is an address of this world at which nothing answers this host.
	silent string
}

func (w *world) host(n int) *host {
	h := &host{world: w, client: w.store.Client(), dir: filepath.Join(w.TempDir(), "cluster"), run: w.TempDir(), n: n,
		seen: make(chan kv.Update, 1000), noted: make(chan api.Event, 1000)}
	h.own(h.node().Addresses...)
	h.start()
	w.Cleanup(func() { h.stop() })
	return h
}

// own makes these addresses those of the host. Its hardware address stays.
func (h *host) own(addresses ...netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.links = []member.Link{{Permanent: net.HardwareAddr{2, 0, 0, 0, 0, byte(h.n)}, Addresses: addresses}}
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
	m, err := member.New(member.Config{Dir: h.dir, Run: h.run, Version: "1.2.3", Host: fmt.Sprint("host", h.n),
		Open: func(access api.EtcdAccess, cluster, _, _ string) (member.Store, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if s := h.elsewhere[access.Endpoints[0]]; s != nil {
				return h.connect(s.Client()), nil
			}
			return h.connect(h.storeOf(cluster)), h.openError
		},
		Listen: h.listen, Dial: h.dial,
		MTU: func([]netip.Addr) (int, error) { h.checks.Add(1); return int(h.mtu.Load()), nil },
		Links: func() ([]member.Link, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.links, nil
		},
		Machine:   h.machine,
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
