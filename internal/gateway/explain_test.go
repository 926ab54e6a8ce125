package gateway_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
)

// explained is a configuration with routers of all kinds of answers.
func explained() (model.Static, *model.Config) {
	static := model.Static{Default: []string{"web", "websecure"}, EntryPoints: []model.EntryPoint{
		{Name: "plain", Address: ":80", Redirect: &model.Redirection{To: "websecure"}},
		{Name: "web", Address: ":8080"},
		{Name: "websecure", Address: ":443", Middlewares: []string{"all@file"}},
	}}
	weight := 1
	return static, &model.Config{HTTP: model.HTTP{
		Routers: map[string]*model.Router{
			"shop@file": {Rule: "Host(`shop.test`)", Service: "shop@file", Middlewares: []string{"own@file"},
				TLS: &model.RouterTLS{}, EntryPoints: []string{"websecure"}},
			"strict@file": {Rule: "Host(`strict.test`)", Service: "shop@file",
				TLS: &model.RouterTLS{Options: "strict@file"}, EntryPoints: []string{"websecure"}},
			"plain@file": {Rule: "Host(`plain.test`) && Path(`/a`)", Service: "down@file"},
			"lost@file":  {Rule: "Host(`lost.test`)", Service: "none@file"},
		},
		Middlewares: map[string]*model.Middleware{"own@file": {AddPrefix: &model.AddPrefix{Prefix: "/a"}},
			"all@file": {AddPrefix: &model.AddPrefix{Prefix: "/b"}}},
		Services: map[string]*model.Service{
			"shop@file": {LoadBalancer: &model.LoadBalancer{Servers: []model.Server{
				{URL: "http://192.0.2.1", Weight: &weight}, {URL: "http://192.0.2.2", Down: "refused"},
				{URL: "http://192.0.2.3", Fenced: true}}}},
			"down@file": {LoadBalancer: &model.LoadBalancer{Servers: []model.Server{
				{URL: "http://192.0.2.2", Down: "refused"}}}},
		},
	}, TLS: model.TLS{Options: map[string]*model.TLSOptions{"strict@file": {SNIStrict: true}}}}
}

// TestExplainAnswers checks which parts a request meets, and what is wrong on its way.
func TestExplainAnswers(t *testing.T) {
	static, config := explained()
	g, err := gateway.Checking(static, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(url string) shown.Answer {
		t.Helper()
		a, err := g.Explain("", "GET", url)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := ask("https://shop.test/x")
	if a.EntryPoint != "websecure" || a.Address != ":443" || a.Router != "shop@file" || a.Rule != "Host(`shop.test`)" ||
		!slices.Equal(a.Middlewares, []string{"all@file", "own@file"}) || a.Service != "shop@file" {
		t.Errorf("answer: %+v", a)
	}
	if want := []shown.ServerState{{URL: "http://192.0.2.1", State: "up"},
		{URL: "http://192.0.2.2", State: "down", Reason: "refused"}, {URL: "http://192.0.2.3", State: "draining",
			Reason: "it gets requests of existing sessions only"}}; !reflect.DeepEqual(a.Servers, want) {
		t.Errorf("servers: %+v, want %+v", a.Servers, want)
	}
	if a.Certificate == nil || !a.Certificate.Default {
		t.Errorf("certificate: %+v, want the default one", a.Certificate)
	}
	for url, want := range map[string]string{
		"https://shop.test/":        "no certificate has the name shop.test",
		"https://strict.test/":      "the handshake fails: no certificate for this name",
		"http://plain.test:8080/a":  "no server that is up: the answer is 503",
		"http://shop.test/":         "the entry point redirects all requests to websecure",
		"http://lost.test:8080/":    "lost@file: it is disabled: service none@file does not exist",
		"http://shop.test:8080/":    "plain@file: Host(`plain.test`) does not match",
		"http://plain.test:8081/b":  "plain@file: Path(`/a`) does not match: the request has path \"/b\"",
		"https://plain.test:443/a":  "",
		"https://plain.test:1443/a": "plain@file: it has no tls, so it takes only http",
	} {
		a := ask(url)
		text := strings.Join(a.Problems, "\n")
		for _, n := range a.Nearest {
			text += "\n" + n.Router + ": " + strings.Join(n.Why, "; ")
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s: %s\nwant %s", url, text, want)
		}
	}
	if a := ask("http://plain.test:8081/a"); a.Router != "plain@file" || a.EntryPoint != "web" {
		t.Errorf("at a port without an entry point: %+v, want all entry points tried", a)
	}
}

// TestServersThatAreDown checks that a server that the daemon has marked gets no request,
// and that an entry that the daemon has not resolved disables its service.
func TestServersThatAreDown(t *testing.T) {
	w := newWorld(t, model.Static{})
	up, down := server(t, named("up")), server(t, named("down"))
	both := model.LoadBalancer{Servers: append(up.LoadBalancer.Servers, down.LoadBalancer.Servers...)}
	both.Servers[1].Down = "its check failed"
	routers := map[string]*model.Router{"all@file": {Rule: "PathPrefix(`/`)", Service: "all@file"}}
	w.apply(routers, map[string]*model.Service{"all@file": {LoadBalancer: &both}})
	for range 4 {
		if _, body := w.get("http://all.test/"); body != "up" {
			t.Fatalf("the answer is %q", body)
		}
	}
	statuses := w.apply(routers, map[string]*model.Service{"all@file": {LoadBalancer: &model.LoadBalancer{
		Servers: []model.Server{{Service: "gone"}}}}})
	i := slices.IndexFunc(statuses, func(s status.Status) bool { return s.Name == "all@file" && s.Kind == "service" })
	if i < 0 || statuses[i].State != status.Disabled ||
		!strings.Contains(statuses[i].Reasons[0], "virtual service gone") {
		t.Errorf("statuses: %+v", statuses)
	}
}

// TestExplainDoubts checks that an answer has what is doubtful about its router.
func TestExplainDoubts(t *testing.T) {
	static, config := explained()
	const old = "a.yml: parse YAML: its configuration stays in use"
	g, err := gateway.Checking(static, config, []status.Status{
		{Kind: "router", Name: "plain@file", State: status.Warning, Reasons: []string{old}},
		{Kind: "source", Name: "b.yml", State: status.Disabled, Reasons: []string{"empty"}},
		{Kind: "source", Name: "a.yml", State: status.Warning, Reasons: []string{"half"}}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := g.Explain("", "GET", "http://plain.test:8080/a")
	if err != nil || a.Router != "plain@file" || !slices.Contains(a.Problems, old) {
		t.Errorf("answer: %+v (%v), want the problem %q", a, err, old)
	}
	a, err = g.Explain("", "GET", "http://other.test:8080/")
	if err != nil || !slices.Equal(a.Problems, []string{"b.yml: empty"}) {
		t.Errorf("answer: %+v (%v), want the source without objects", a, err)
	}
}
