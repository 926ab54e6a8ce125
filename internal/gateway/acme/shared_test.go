package acme_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead/internal/cluster/certificates"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
	"fairlead/internal/gateway/acme"
	"fairlead/internal/gateway/acme/acmetest"
	model "fairlead/internal/model/gateway"
)

// cluster has three hosts with a resolver each. The authority reaches the gateway of the second only.
type cluster struct {
	*world
	store *kvtest.Store
	key   []byte
	hosts []*clusterHost
}

// clusterHost is a host with a Manager.
type clusterHost struct {
	cluster  *cluster
	id       string
	shared   *certificates.Certificates
	client   *kvtest.Client
	resolver model.Resolver
	routers  map[string]*model.Router
	manager  *acme.Manager
	// stop ends the manager as SIGTERM does.
	stop func()
	// cancel does not wait for its end.
	cancel context.CancelFunc
	// registered, if it is not nil, is called when the manager has registered an account.
	registered func()

	// busy, if it is not nil, is called by the first attempt, which then finds the lock taken.
	busy func()

	// deaf makes the manager miss the changes of other hosts.
	deaf atomic.Bool

	mu   sync.Mutex
	last model.Config
}

// Peer implements certificates.Peers.
func (h *clusterHost) Peer(ctx context.Context, id, _ string, q, into any) error {
	text, err := json.Marshal(q)
	if err != nil {
		return err
	}
	a, err := h.cluster.hosts[id[0]-'1'].shared.Answer(ctx, h.id, text)
	if err != nil {
		return err
	}
	text, err = json.Marshal(a)
	return errors.Join(err, json.Unmarshal(text, into))
}

// newCluster returns hosts whose managers do not run yet.
func newCluster(t *testing.T, resolver model.Resolver) *cluster {
	t.Helper()
	resolver.Storage = model.StorageCluster
	c := &cluster{world: newWorld(t, acmetest.Options{}, resolver), store: kvtest.New(), key: trust.NewClusterKey()}
	for i := range 3 {
		h := &clusterHost{cluster: c, id: fmt.Sprint(i + 1), client: c.store.Client(),
			resolver: *c.static.Resolvers["le"], routers: map[string]*model.Router{}}
		h.shared = certificates.New(certificates.Config{Store: h.client, Peers: h, Log: slog.New(slog.DiscardHandler),
			Box:    func() (*trust.Box, error) { return trust.NewBox(c.key, "c", certificates.Purpose) },
			Recall: func() (certificates.Recalled, error) { return certificates.Recalled{}, nil }})
		_, err := h.client.Commit(t.Context(), kv.Txn{Then: []kv.Change{
			{Key: record.Key(record.Nodes, h.id), Value: record.Encode(record.Node{ID: h.id, Name: "host" + h.id})},
			{Key: record.Key(record.Alives, h.id), Value: record.Encode(record.Alive{})}}})
		if err != nil {
			t.Fatal(err)
		}
		c.hosts = append(c.hosts, h)
	}
	for _, h := range c.hosts {
		h.follow()
	}
	return c
}

// follow gives the host the cluster's snapshots until the test ends.
func (h *clusterHost) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.shared.Run(ctx) })
	running.Go(func() {
		for u := range h.client.Updates(ctx) {
			h.shared.Update(ctx, member.Self{Cluster: "c", Node: h.id, Name: "host" + h.id}, u)
		}
	})
	h.cluster.Cleanup(func() { cancel(); running.Wait() })
}

// start runs a manager of the host.
func (h *clusterHost) start() {
	static := h.cluster.static
	static.Resolvers = map[string]*model.Resolver{"le": &h.resolver}
	known := make(chan struct{})
	stopFollowing := h.shared.Follow(func(_ context.Context, keys []string) error {
		<-known
		if !h.deaf.Load() {
			h.manager.Refresh(keys)
		}
		return h.apply(context.Background())
	})
	log := slog.New(slog.NewTextHandler(h.cluster.Output(), nil)).With("host", h.id)
	if h.registered != nil {
		log = slog.New(onRegistration{log.Handler(), h.registered})
	}
	h.manager = acme.New(acme.Options{Static: static, Shared: firstBusy{h.shared, h}, Changed: h.apply, Log: log})
	close(known)
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	var running sync.WaitGroup
	_ = h.apply(ctx) // it cannot fail
	running.Go(func() { h.manager.Run(ctx) })
	h.stop = sync.OnceFunc(func() { stopFollowing(); cancel(); running.Wait() })
	h.cluster.Cleanup(h.stop)
}

// firstBusy calls busy during the first attempt of a host.
type firstBusy struct {
	acme.Shared
	h *clusterHost
}

// Try implements acme.Shared.
func (f firstBusy) Try(ctx context.Context, name string) (context.Context, int, error) {
	if f.h.busy == nil {
		return f.Shared.Try(ctx, name)
	}
	f.h.busy()
	f.h.busy = nil
	return nil, 0, model.Busy{Host: "another host"}
}

// onRegistration calls do when an account is registered.
type onRegistration struct {
	slog.Handler
	do func()
}

// Handle implements slog.Handler.
func (h onRegistration) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "registered an account" {
		h.do()
	}
	return h.Handler.Handle(ctx, r)
}

// apply makes the second host's gateway have the configuration.
func (h *clusterHost) apply(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	config := model.Config{HTTP: model.HTTP{Routers: maps.Clone(h.routers)}}
	h.manager.Complete(&config)
	if h.id == "2" {
		h.cluster.gateway.Apply(&config, nil)
	}
	h.last = config
	return nil
}

// state returns the state of a certificate.
func (h *clusterHost) state(name string) (s model.CertificateState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.last.ACME.Certificates {
		if slices.Contains(s.Names, name) {
			return s
		}
	}
	return s
}

// until waits for a state of a certificate on a host.
func (h *clusterHost) until(name string, holds func(model.CertificateState) bool) model.CertificateState {
	h.cluster.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if s := h.state(name); holds(s) {
			return s
		} else if time.Now().After(end) {
			h.cluster.Fatalf("host %s: %s: %+v", h.id, name, s)
		}
	}
}

// certificate returns the certificate of a host for a name, as PEM text.
func (h *clusterHost) certificate(name string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, s := range h.last.ACME.Certificates {
		if slices.Contains(s.Names, name) && !s.NotAfter.IsZero() && i < len(h.last.TLS.Certificates) {
			return h.last.TLS.Certificates[i].CertFile
		}
	}
	return ""
}

// TestOneOrder lets three hosts want the same certificates at the same time. Each is ordered once, and the
// authority's requests reach the second host, whichever has ordered it.
func TestOneOrder(t *testing.T) {
	for name, resolver := range map[string]model.Resolver{"http": {HTTPChallenge: "web"}, "tls": {TLSChallenge: true}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, resolver)
			const names = 6
			for _, h := range c.hosts {
				for i := range names {
					h.routers[fmt.Sprint("r", i, "@file")] = secureRouter(fmt.Sprintf("Host(`%d.test`)", i))
				}
				h.start()
			}
			for i := range names {
				name, first := fmt.Sprint(i, ".test"), ""
				for _, h := range c.hosts {
					h.until(name, valid)
					if got := h.certificate(name); first == "" {
						first = got
					} else if got != first {
						t.Errorf("host %s has another certificate for %s", h.id, name)
					}
				}
				if got := c.served(name); !slices.Equal(got.DNSNames, []string{name}) {
					t.Errorf("%s is served with a certificate for %v", name, got.DNSNames)
				}
			}
			if n := c.authority.Orders(); n != names {
				t.Errorf("%d orders for %d certificates", n, names)
			}
			c.empty()
		})
	}
}

// TestStaleHost lets a host want a certificate that another host has obtained without its knowledge. It takes
// the lock, and finds it.
func TestStaleHost(t *testing.T) {
	c := newCluster(t, model.Resolver{HTTPChallenge: "web"})
	one, three := c.hosts[0], c.hosts[2]
	three.start()
	three.deaf.Store(true)
	c.hosts[1].start()
	one.routers["a@file"] = secureRouter("Host(`a.test`)")
	one.start()
	one.until("a.test", valid)
	c.empty()
	three.hasNewest()
	three.mu.Lock()
	three.routers["a@file"] = one.routers["a@file"]
	three.mu.Unlock()
	_ = three.apply(t.Context()) // it cannot fail
	three.until("a.test", valid)
	if n := c.authority.Orders(); n != 1 || one.certificate("a.test") != three.certificate("a.test") {
		t.Errorf("%d orders", n)
	}
}

// empty waits until no lock and no challenge is left.
func (c *cluster) empty() {
	c.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		for _, prefix := range []string{record.CertificateLocks, record.Challenges} {
			for e := range c.store.Snapshot().Under(prefix) {
				left = append(left, e.Key)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			c.Fatalf("the records %q are left", left)
		}
	}
}

// hasNewest waits until the host has a snapshot with all records that are in the store now.
func (h *clusterHost) hasNewest() {
	h.cluster.Helper()
	ctx := h.cluster.Context()
	if _, err := h.client.Commit(ctx, kv.Txn{Then: []kv.Change{{Key: record.Certificates + "newest/a",
		Value: []byte("{}")}}}); err != nil {
		h.cluster.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if keys, _ := h.shared.List(ctx, "newest", false); len(keys) > 0 {
			return
		}
		if time.Now().After(end) {
			h.cluster.Fatalf("host %s gets no snapshots", h.id)
		}
	}
}

// TestSharedFailure checks that a failed attempt is that of all hosts, also if their settings differ, and
// that a host with new settings tries once.
func TestSharedFailure(t *testing.T) {
	c := newCluster(t, model.Resolver{HTTPChallenge: "web"})
	for _, h := range c.hosts[:2] {
		h.routers["m@file"] = secureRouter("Host(`missing.test`)")
		h.start()
	}
	var first model.CertificateState
	for _, h := range c.hosts[:2] {
		s := h.until("missing.test", failed)
		if first.Next.IsZero() {
			first = s
		}
		if !s.Next.Equal(first.Next) || !strings.Contains(s.Reason, "missing.test") {
			t.Errorf("host %s: %+v, want %+v", h.id, s, first)
		}
	}
	if n := c.authority.Orders(); n != 1 {
		t.Errorf("%d orders", n)
	}
	three := c.hosts[2]
	three.resolver.KeyType = "EC384"
	three.routers["m@file"] = secureRouter("Host(`missing.test`)")
	three.start()
	for _, h := range c.hosts {
		h.until("missing.test", func(s model.CertificateState) bool {
			return s.State == model.CertificateFailed && !s.Next.Equal(first.Next)
		})
	}
	c.empty()
	if n := c.authority.Orders(); n != 2 {
		t.Errorf("%d orders after other settings", n)
	}
}

// TestSharedEarlyRefresh: another host releases the lock before the attempt that found it taken has returned.
func TestSharedEarlyRefresh(t *testing.T) {
	c := newCluster(t, model.Resolver{HTTPChallenge: "web"})
	one := c.hosts[0]
	one.routers["a@file"] = secureRouter("Host(`a.test`)")
	one.busy = func() { one.manager.Refresh(nil) }
	c.hosts[1].start() // it answers challenges
	one.start()
	one.until("a.test", valid)
}

// TestSharedAway checks what is shown while the store does not answer, and that the certificate is obtained
// when it does. A damaged record is replaced.
func TestSharedAway(t *testing.T) {
	c := newCluster(t, model.Resolver{HTTPChallenge: "web"})
	one := c.hosts[0]
	one.routers["a@file"] = secureRouter("Host(`a.test`)")
	c.hosts[1].start()                                                    // it answers challenges
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // it has a snapshot
		if _, _, err := one.shared.Try(t.Context(), "x"); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if err := one.shared.Unlock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	one.client.Set(kvtest.Refused)
	one.start()
	s := one.until("a.test", func(s model.CertificateState) bool { return s.Reason != "" })
	if s.State != model.CertificatePending || !strings.Contains(s.Reason, "etcd does not answer") {
		t.Errorf("without the store: %+v", s)
	}
	if n := c.authority.Orders(); n != 0 {
		t.Errorf("%d orders without the store", n)
	}
	one.client.Set(kvtest.Works)
	one.until("a.test", valid)
	c.empty()
}

// TestStoppedAtRegistration stops the gateway when the authority has registered an account and the storage does not
// have it yet. The next gateway would register another one.
func TestStoppedAtRegistration(t *testing.T) {
	c := newCluster(t, model.Resolver{HTTPChallenge: "web"})
	one, ended := c.hosts[0], make(chan struct{})
	one.registered = func() {
		one.cancel()
		close(ended)
	}
	one.routers["a@file"] = secureRouter("Host(`a.test`)")
	one.start()
	<-ended
	one.stop()
	if _, exists := c.store.Snapshot().Get(record.Certificates + "le/account"); !exists {
		t.Error("the account is not stored")
	}
	c.empty()
}
