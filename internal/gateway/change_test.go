package gateway_test

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"testing"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// hosts of the test's routers.
const hosts = 5

// TestChangesEqualAFreshStart applies random configurations one after the other. After
// each, the gateway must have the states and routers of one that starts with it.
func TestChangesEqualAFreshStart(t *testing.T) {
	static := model.Static{Default: []string{"web"}, API: &model.API{Insecure: true},
		EntryPoints: []model.EntryPoint{{Name: "web"}, {Name: "other", Middlewares: []string{"m0@file"}}}}
	changed := newGateway(t, static)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	config := model.HTTP{Routers: map[string]*model.Router{}, Services: map[string]*model.Service{},
		Middlewares: map[string]*model.Middleware{}, ServersTransports: map[string]*model.ServersTransport{}}
	for step := range 400 {
		config = mutate(r, config)
		var known []status.Status
		for i := range r.IntN(3) {
			known = append(known, status.Status{Kind: "router", Name: fmt.Sprintf("r%d@file", i),
				State: status.Disabled, Reasons: []string{"faulty"}})
		}
		fresh := newGateway(t, static)
		got := changed.Apply(&model.Config{HTTP: config}, known)
		want := fresh.Apply(&model.Config{HTTP: config}, known)
		if g, w := states(got), states(want); g != w {
			t.Fatalf("seed %d, step %d: states after the change\n%swant\n%s", seed, step, g, w)
		}
		for i := range hosts {
			for _, scheme := range []string{"http", "https"} {
				url := fmt.Sprintf("%s://h%d.test/", scheme, i)
				g, _ := changed.Explain("", "GET", url)
				w, _ := fresh.Explain("", "GET", url)
				if g.Router != w.Router || g.Service != w.Service {
					t.Fatalf("seed %d, step %d: %s takes %+v, want %+v", seed, step, url, g, w)
				}
			}
		}
	}
	changed.Apply(&model.Config{}, nil)
}

func newGateway(t *testing.T, static model.Static) *gateway.Gateway {
	t.Helper()
	g, err := gateway.New(static, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// states returns what became of each object, without the reasons: their order depends on
// what is built first.
func states(all []status.Status) string {
	text := ""
	for _, s := range all {
		text += fmt.Sprintln(s.Kind, s.Name, s.State)
	}
	return text
}

// mutate returns the configuration with one to three other objects.
func mutate(r *rand.Rand, old model.HTTP) model.HTTP {
	next := model.HTTP{Routers: maps.Clone(old.Routers), Services: maps.Clone(old.Services),
		Middlewares: maps.Clone(old.Middlewares), ServersTransports: maps.Clone(old.ServersTransports)}
	name := func(kind string) string { return fmt.Sprintf("%s%d@file", kind, r.IntN(6)) }
	for range 1 + r.IntN(3) {
		switch r.IntN(8) {
		case 0:
			delete(next.Routers, name("r"))
		case 1:
			delete(next.Services, name("s"))
		case 2:
			delete(next.Middlewares, name("m"))
		case 3:
			next.Middlewares[name("m")] = anyMiddleware(r, name)
		case 4:
			peer := []string{"", "spiffe://x"}[r.IntN(2)]
			next.ServersTransports["t@file"] = &model.ServersTransport{PeerCertURI: peer}
		case 5:
			next.Services[name("s")] = anyService(r, name)
		default:
			next.Routers[name("r")] = anyRouter(r, name)
		}
	}
	return next
}

func anyMiddleware(r *rand.Rand, name func(string) string) *model.Middleware {
	switch r.IntN(4) {
	case 0:
		return &model.Middleware{Chain: &model.Chain{Middlewares: []string{name("m")}}}
	case 1:
		return &model.Middleware{Errors: &model.Errors{Status: []string{"500"}, Service: name("s"), Query: "/"}}
	case 2:
		return &model.Middleware{}
	}
	return &model.Middleware{AddPrefix: &model.AddPrefix{Prefix: "/x"}}
}

func anyService(r *rand.Rand, name func(string) string) *model.Service {
	switch r.IntN(4) {
	case 0:
		return &model.Service{Failover: &model.Failover{Service: name("s"), Fallback: name("s")}}
	case 1:
		return &model.Service{Weighted: &model.Weighted{Services: []model.WeightedService{{Name: name("s")}}},
			Middlewares: []string{name("m")}}
	case 2:
		s := serviceOf("https://127.0.0.1:1")
		s.LoadBalancer.ServersTransport = "t@file"
		return s
	}
	return serviceOf(fmt.Sprintf("http://127.0.0.1:%d", 1+r.IntN(3)))
}

func anyRouter(r *rand.Rand, name func(string) string) *model.Router {
	v := &model.Router{Rule: fmt.Sprintf("Host(`h%d.test`)", r.IntN(hosts)), Service: name("s"), Priority: r.IntN(3)}
	if r.IntN(3) == 0 {
		v.Middlewares = []string{name("m")}
	}
	if r.IntN(4) == 0 {
		v.Rule = "PathPrefix(`/`)"
	}
	if r.IntN(3) == 0 {
		v.TLS = &model.RouterTLS{}
	}
	if r.IntN(4) == 0 {
		v.EntryPoints = []string{"other", "web"}
	}
	return v
}
