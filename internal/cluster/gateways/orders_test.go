package gateways_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/gateways"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
	"fairlead/internal/process/hosted"
)

// host is a daemon without a host.
type host struct {
	mu    sync.Mutex
	has   *model.ClusterGateway
	found []api.SelectedSandbox
	fails int
}

func (h *host) Set(c *model.ClusterGateway) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fails > 0 {
		h.fails--
		return errors.New("port taken")
	}
	h.has = c
	return nil
}

func (h *host) Sandboxes([]model.Select) []api.SelectedSandbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.found
}

// world is a cluster with a running node a, in a bubble of synctest.
type world struct {
	*testing.T
	*kvtest.Store
	*host
	*gateways.Gateways
	changed chan struct{}
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, Store: kvtest.New(), host: &host{}, changed: make(chan struct{}, 1)}
	client := w.Client()
	for key, value := range records() {
		if _, err := client.Commit(t.Context(), kv.Txn{Then: []kv.Change{{Key: key, Value: value}}}); err != nil {
			t.Fatal(err)
		}
	}
	w.Gateways = gateways.New(gateways.Config{Host: w.host, Store: client, Changed: w.changed, Every: time.Second,
		Size: hosted.SizeOfExpressions,
		Check: func(c gateway.Config) (problems []model.GatewayProblem) {
			for name, r := range c.HTTP.Routers {
				if c.HTTP.Services[r.Service] == nil {
					problems = append(problems, model.GatewayProblem{Kind: "router", Name: name,
						Text: "it has no service"})
				}
			}
			return problems
		}, Log: slog.New(slog.DiscardHandler)})
	w.update()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Gateways.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

// update gives the node the store's snapshot, and lets it publish.
func (w *world) update() []string {
	s := w.Snapshot()
	var keys []string
	s.Under("")(func(e kv.Entry) bool { keys = append(keys, e.Key); return true })
	problems := w.Update(w.Context(), member.Self{Node: "a"}, kv.Update{Snapshot: s, Changed: keys})
	return problems
}

// declared is a configuration with a router for each service, which selects sandboxes.
func declared(services ...string) (c gateway.Config) {
	c.HTTP.Routers, c.HTTP.Services = map[string]*gateway.Router{}, map[string]*gateway.Service{}
	for _, name := range services {
		c.HTTP.Routers[name] = &gateway.Router{Rule: "Host(`" + name + "`)", Service: name}
		c.HTTP.Services[name] = &gateway.Service{LoadBalancer: &gateway.LoadBalancer{
			Servers: []gateway.Server{{Network: "shop", Port: "80"}}}}
	}
	return c
}

// apply applies a set, and returns the changes in one line.
func (w *world) apply(set string, c gateway.Config, dry bool) string {
	w.Helper()
	changes, err := w.Apply(w.Context(), api.Spec{Set: set, ClusterGateway: &c}, dry)
	if err != nil {
		return err.Error()
	}
	w.update()
	var texts []string
	for _, c := range changes {
		texts = append(texts, c.String())
	}
	return strings.Join(texts, "; ")
}

// TestApply applies sets of files: the objects of a set follow its files, and other sets cannot change them.
func TestApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := func(want, got string) {
			t.Helper()
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
		created := "gateway router web@cluster: created; gateway service web@cluster: created"
		want(created, w.apply("site", declared("web"), true))
		want(created, w.apply("site", declared("web"), false))
		want("", w.apply("site", declared("web"), false))
		want("cluster.gateway.http.routers.web: the cluster has it already, declared by the set of files site: choose "+
			"another name, or remove it there\ncluster.gateway.http.services.web: the cluster has it already, declared by "+
			"the set of files site: choose another name, or remove it there", w.apply("other", declared("web"), false))
		other := gateway.Config{}
		other.HTTP.Routers = map[string]*gateway.Router{"blog": {Rule: "Host(`blog`)", Service: "web"}}
		want("gateway router blog@cluster: created", w.apply("other", other, false)) // another set has the service
		other.HTTP.Routers["blog"].Service = "gone"
		want("cluster.gateway.http.routers.blog: it has no service", w.apply("other", other, false))
		moved := declared("web")
		moved.HTTP.Services["web"].LoadBalancer.Servers[0].Network = "own"
		want("cluster.gateway.http.services.web: network own is none of the cluster's", w.apply("site", moved, false))
		moved.HTTP.Services["web"].LoadBalancer.Servers[0] = gateway.Server{URL: "http://a"}
		want("gateway service web@cluster: changed", w.apply("site", moved, false))
		many := declared("web")
		for range 200 {
			name := strings.Repeat("x", 1+len(many.HTTP.Routers))[:min(100, 1+len(many.HTTP.Routers))]
			many.HTTP.Routers[name] = &gateway.Router{Rule: "Host(`x`)", Service: "web"}
		}
		w.apply("site", many, false)
		want("", w.apply("site", many, false))
		w.apply("site", gateway.Config{}, false)
		if w.has == nil || len(w.has.Config.HTTP.Routers) != 1 || w.has.Config.HTTP.Routers["blog"] == nil {
			t.Errorf("after the removal of a set, the host has %+v, want the other set's router", w.has)
		}
		var certificates gateway.Config
		certificates.TLS.Certificates = []gateway.Certificate{{CertFile: "/a", KeyFile: "/b"}}
		want("cluster.gateway.tls.certificates./a: certificates are those of each host: declare them below gateway, or "+
			"let a resolver of each host obtain them", w.apply("third", certificates, false))
		want("cluster.gateway: objects of a cluster need a set with a name, which is the same on all hosts: add e.g. name: "+
			"shop to the file", w.apply("", declared("web"), false))
		want("", w.apply("", gateway.Config{}, false))
	})
}

// TestPublish publishes the sandboxes that selectors find, and only while there are selectors.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.found = []api.SelectedSandbox{{By: shop, Endpoint: "web-1", Address: netip.MustParseAddr("10.9.0.9")}}
		key := record.Key(record.Selected, record.SelectorHash(shop), "a", "web-1")
		published := func() (s record.SelectedSandbox, exists bool) {
			select {
			case w.changed <- struct{}{}:
			default:
			}
			synctest.Wait()
			s, exists, err := record.Get[record.SelectedSandbox](w.Snapshot(), key)
			if err != nil {
				t.Fatal(err)
			}
			return s, exists
		}
		if _, exists := published(); exists {
			t.Error("a sandbox is published that no service selects")
		}
		w.apply("site", declared("web"), false)
		if s, exists := published(); !exists || s.Draining {
			t.Errorf("the selected sandbox: %+v, %v", s, exists)
		}
		w.update()
		w.mu.Lock()
		w.found[0].Draining = true
		w.mu.Unlock()
		if s, _ := published(); !s.Draining {
			t.Error("a drain is not published")
		}
		w.update()
		w.apply("site", gateway.Config{}, false)
		if _, exists := published(); exists {
			t.Error("the record of a sandbox is left that no service selects any more")
		}
		if err := w.Leave(); err != nil || w.has != nil {
			t.Errorf("after leaving, the host has %+v, %v", w.has, err)
		}
		web := declared("web")
		_, err := w.Apply(t.Context(), api.Spec{Set: "site", ClusterGateway: &web}, true)
		if api.CodeOf(err) != api.NotFound {
			t.Errorf("apply without a cluster: %v", err)
		}
	})
}

// TestPublishInSharedStore drains a node while it publishes, in a store that another program changes, too. The
// node must publish as soon as it has its new record, whatever the store's revision is.
func TestPublishInSharedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.apply("site", declared("web"), false)
		synctest.Wait()
		self := record.Key(record.Nodes, "a")
		n, _, err := record.Get[record.Node](w.Snapshot(), self)
		if err != nil {
			t.Fatal(err)
		}
		n.Drained = true
		drain := kv.Txn{Then: []kv.Change{{Key: self, Value: record.Encode(n)}}}
		if _, err := w.Client().Commit(t.Context(), drain); err != nil {
			t.Fatal(err)
		}
		w.ChangeElsewhere()
		w.mu.Lock()
		w.found = []api.SelectedSandbox{{By: shop, Endpoint: "web-1", Address: netip.MustParseAddr("10.9.0.9")}}
		w.mu.Unlock()
		key := record.Key(record.Selected, record.SelectorHash(shop), "a", "web-1")
		w.changed <- struct{}{}
		synctest.Wait()
		if _, exists := w.Snapshot().Get(key); exists {
			t.Error("the sandbox is published with an old record of the node")
		}
		w.update()
		synctest.Wait()
		if _, exists := w.Snapshot().Get(key); !exists {
			t.Error("the sandbox is not published with the new record of the node")
		}
	})
}

// TestRefused gives the host the objects again that it could not take over.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.fails = 1
		w.apply("site", declared("web"), false)
		problems := w.Update(t.Context(), member.Self{Node: "a"}, kv.Update{Snapshot: w.Snapshot()})
		if len(problems) != 1 || !strings.Contains(problems[0], "port taken") {
			t.Errorf("problems: %q", problems)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if w.has == nil {
			t.Error("the host does not have the objects")
		}
	})
}
