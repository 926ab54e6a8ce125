package services_test

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/kv/kvtest"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/services"
	"fairlead/internal/model"
)

// host is a daemon without a host.
type host struct {
	changed chan struct{}
	mu      sync.Mutex
	own     []api.OwnReal
	asked   int
}

func (h *host) Services() []api.ServiceView {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	own := api.ServiceView{Own: []api.OwnReal{{Endpoint: "mine"}}}
	own.Name = "own"
	shared := api.ServiceView{Own: h.own}
	shared.Name, shared.Origin = "web", model.FromCluster
	return []api.ServiceView{own, shared}
}

// has replaces the host's real servers of service web.
func (h *host) has(own ...api.OwnReal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.own = own
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// world is a cluster with a running node, in a bubble of synctest.
type world struct {
	*testing.T
	*kvtest.Store
	*host
	services *services.Services
	// client commits the node's transactions, and follower has its updates.
	client, follower *kvtest.Client
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, Store: kvtest.New(), host: &host{changed: make(chan struct{}, 1)}}
	w.client, w.follower = w.Client(), w.Client()
	w.services = services.New(services.Config{Host: w.host, Store: w.client, Changed: w.changed, Every: time.Second,
		Log: slog.New(slog.DiscardHandler)})
	w.put("nodes/n0", record.Node{ID: "n0", Name: "host1", Addresses: []netip.Addr{addr("192.0.2.1")}})
	w.put("names/host1", record.NodeName{Node: "n0"})
	for name, driver := range map[string]model.Driver{"shop": model.DriverVXLAN, "lan": model.DriverRouted} {
		w.put("nets/"+name, record.Network{Direct: driver.Traits().Remote, BlockBits: []int{26},
			Spec: model.Network{Name: name, Driver: driver,
				Subnets: []model.Subnet{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}}}})
	}
	go w.services.Run(t.Context())
	go func() {
		for u := range w.follower.Updates(t.Context()) {
			w.services.Update(t.Context(), member.Self{Node: "n0"}, u)
		}
	}()
	synctest.Wait()
	return w
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func (w *world) put(key string, v any) {
	w.Helper()
	change := kv.Change{Key: key}
	if v != nil {
		change.Value = record.Encode(v)
	}
	if _, err := w.Client().Commit(w.Context(), kv.Txn{Then: []kv.Change{change}}); err != nil {
		w.Fatal(err)
	}
}

// published waits a while and returns the records of real servers.
func (w *world) published() string {
	time.Sleep(5 * time.Second)
	synctest.Wait()
	var all []string
	w.Snapshot().Under(record.Reals)(func(e kv.Entry) bool {
		all = append(all, strings.TrimPrefix(e.Key, record.Reals)+string(e.Value))
		return true
	})
	return strings.Join(all, " ")
}

type order = api.ClusterServiceRequest

// web returns a service of the cluster.
func web() api.ClusterServiceRequest {
	v := model.VirtualService{Name: "web", Addresses: []netip.Addr{addr("198.51.100.80")},
		Ports: []model.PortRange{model.Port(80)}, Proto: model.TCP,
		Reals: []model.RealServer{{Select: model.Select{Network: "shop"}, Weight: 1}}}
	return api.ClusterServiceRequest{ClusterService: api.ClusterService{VirtualService: v}}
}

// TestPublish starts, drains and ends a container on a node, and counts the revisions of the store.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		shop := api.OwnReal{Endpoint: "shop", Address: addr("10.9.0.7"), Weight: 1}
		w.has(shop)
		if got := w.published(); got != "" || w.asked > 0 {
			t.Errorf("without a service, %q is published, and the host was asked %d times", got, w.asked)
		}
		if err := w.services.SetService(t.Context(), web()); err != nil {
			t.Fatal(err)
		}
		want := `web/n0/shop{"address":"10.9.0.7","weight":1}`
		if got := w.published(); got != want {
			t.Errorf("%s is published, want %s", got, want)
		}
		before := w.Snapshot().Revision()
		w.has(shop)
		if got := w.published(); got != want || w.Snapshot().Revision() != before {
			t.Errorf("%s is published with revision %d after %d", got, w.Snapshot().Revision(), before)
		}
		shop.Draining = true
		w.has(shop)
		want = `web/n0/shop{"address":"10.9.0.7","weight":1,"draining":true}`
		if got := w.published(); got != want || w.Snapshot().Revision() != before+1 {
			t.Errorf("%s is published with revision %d after %d, want %s", got, w.Snapshot().Revision(), before, want)
		}
		w.put("reals/web/n1/other", record.Real{Address: addr("10.9.1.7")})
		w.has()
		if got := w.published(); got != `web/n1/other{"address":"10.9.1.7","weight":0}` {
			t.Errorf("after its end, %s is published", got)
		}
		w.has(shop)
		w.published()
		if err := w.services.RemoveService(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		if got := w.published(); strings.Contains(got, "n0") {
			t.Errorf("without its service, %s is published", got)
		}
	})
}

// TestPublishInSharedStore drains a node while it publishes, in a store that another program changes, too. The
// node must publish as soon as it has its new record, whatever the store's revision is.
func TestPublishInSharedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.services.SetService(t.Context(), web()); err != nil {
			t.Fatal(err)
		}
		w.published()
		w.follower.Set(kvtest.Refused)
		w.put("nodes/n0", record.Node{ID: "n0", Name: "host1", Drained: true})
		w.ChangeElsewhere()
		w.has(api.OwnReal{Endpoint: "shop", Address: addr("10.9.0.7"), Weight: 1})
		if got := w.published(); got != "" {
			t.Errorf("with an old record of the node, %s is published", got)
		}
		w.follower.Set(kvtest.Works)
		if got := w.published(); got != `web/n0/shop{"address":"10.9.0.7","weight":1}` {
			t.Errorf("with the new record of the node, %q is published", got)
		}
	})
}

// TestOrders creates and changes services, and makes mistakes.
func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		set := func(change func(*order)) error {
			r := web()
			change(&r)
			defer synctest.Wait()
			return w.services.SetService(t.Context(), r)
		}
		for want, change := range map[string]func(*order){
			"untranslated, so that they see the client": func(r *order) { r.Reals[0].Port = 8080 },
			"network front is none of the cluster's":    func(r *order) { r.Reals[0].Select.Network = "front" },
			"needs network lan to be an overlay":        func(r *order) { r.Reals[0].Select.Network = "lan" },
			"ingress host9: the cluster has no such":    func(r *order) { r.Ingress = []string{"host9"} },
			"ingress host1: it is listed twice":         func(r *order) { r.Ingress = []string{"host1", "host1"} },
			"node host1 has it":                         func(r *order) { r.Addresses[0] = addr("192.0.2.1") },
			"it is node host1 itself": func(r *order) {
				r.Reals = append(r.Reals, model.RealServer{Address: addr("192.0.2.1"), Weight: 1})
			},
			"it is in subnet 10.9.0.0/16": func(r *order) { r.Addresses[0] = addr("10.9.3.1") },
			"was changed meanwhile":       func(r *order) { r.Was = &api.ClusterService{} },
		} {
			if err := set(change); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		for range 2 {
			if err := set(func(*order) {}); err != nil {
				t.Error(err)
			}
		}
		have, err := w.services.Service(t.Context(), "web")
		if err != nil || have.Forward != model.ForwardDirect || have.Plane != model.PlaneEBPF {
			t.Errorf("the service is %+v, %v", have, err)
		}
		next := func(r *order) { r.ClusterService, r.Ingress = have, []string{"host1"} }
		if err := set(next); api.CodeOf(err) != api.Conflict {
			t.Errorf("a change without the earlier settings: %v", err)
		}
		if err := set(func(r *order) { next(r); r.Was = &have }); err != nil {
			t.Error(err)
		}
		now, err := w.services.Service(t.Context(), "web")
		if err != nil || !slices.Equal(now.Ingress, []string{"host1"}) {
			t.Errorf("after the change, the service is %+v, %v", now, err)
		}
		if err := set(func(r *order) { r.Name = "web2" }); err == nil ||
			!strings.Contains(err.Error(), "already belongs to service web") {
			t.Errorf("a second service with the address: %v", err)
		}
		if err := w.services.RemoveService(t.Context(), "web9"); api.CodeOf(err) != api.NotFound {
			t.Errorf("removal of a service that does not exist: %v", err)
		}
		if err := w.services.Leave(); err != nil {
			t.Error(err)
		}
		if _, err := w.services.Service(t.Context(), "web"); api.CodeOf(err) != api.NotFound {
			t.Errorf("a service after leaving the cluster: %v", err)
		}
	})
}

// TestServiceOfAnotherNode changes and removes a service that another node has added a moment ago: this node has no
// snapshot with it yet, because its host is busy.
func TestServiceOfAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.follower.Set(kvtest.Refused)
		for _, name := range []string{"web", "late"} {
			w.put(record.Key(record.Services, name), record.Service{Spec: model.VirtualService{Name: name,
				Origin: model.FromCommand, Addresses: []netip.Addr{addr("198.51.100.10")}, Ports: []model.PortRange{
					model.Port(80)}, Proto: model.TCP, Plane: model.PlaneEBPF, Forward: model.ForwardDirect}})
		}
		for name, want := range map[string]api.Code{"web": api.Conflict, "none": ""} {
			err := w.services.Unapplied(t.Context(), name)
			if (err != nil) != (want != "") || err != nil && api.CodeOf(err) != want {
				t.Errorf("service %s, which this host does not have: %v", name, err)
			}
		}
		have, err := w.services.Service(t.Context(), "web")
		if err != nil || have.Name != "web" {
			t.Fatalf("the service is %+v, %v", have, err)
		}
		next := api.ClusterServiceRequest{ClusterService: have, Was: &have}
		next.Ingress = []string{"host1"}
		if err := w.services.SetService(t.Context(), next); err != nil {
			t.Errorf("change the service: %v", err)
		}
		if err := w.services.RemoveService(t.Context(), "late"); err != nil {
			t.Errorf("remove the service: %v", err)
		}
		if _, left := w.Snapshot().Get("svcs/late"); left {
			t.Error("the service is still there")
		}
	})
}
