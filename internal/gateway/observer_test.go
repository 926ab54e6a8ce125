package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestMetricsAndAPI reads the gateway's own services as a user's tools do.
func TestMetricsAndAPI(t *testing.T) {
	static := counted()
	static.API, static.Ping = &model.API{}, &model.Ping{EntryPoint: "web"}
	w := newWorld(t, static)
	w.apply(map[string]*model.Router{
		"r@file":   {Rule: "Host(`a.test`)", Service: "s@file"},
		"api@file": {Rule: "PathPrefix(`/api`)", Service: "api@internal"},
		"bad@file": {Rule: "Host(", Service: "s@file"},
	}, map[string]*model.Service{"s@file": server(t, named("hello"))})
	w.get("http://a.test/")
	w.get("http://a.test/")
	if status, body := w.get("http://x.test/ping"); status != 200 || body != "OK" {
		t.Errorf("ping: %d %q", status, body)
	}
	w.wantMetrics(
		`traefik_entrypoint_requests_total{code="200",entrypoint="web",method="GET",protocol="http"} 2`,
		`traefik_router_requests_total{code="200",method="GET",protocol="http",router="r@file",service="s@file"} 2`,
		`traefik_service_requests_total{code="200",method="GET",protocol="http",service="s@file"} 2`,
		`traefik_service_request_duration_seconds_bucket{code="200",method="GET",protocol="http",service="s@file",le="0.1"}`,
		`traefik_open_connections{entrypoint="web",protocol="TCP"} 2`,
		`traefik_config_reloads_total 2`)
	_, raw := w.get("http://x.test/api/rawdata")
	var data struct {
		Routers map[string]struct {
			Status, Rule, Service string
			Error                 []string
		}
		Services map[string]struct{ ServerStatus map[string]string }
	}
	if err := json.Unmarshal([]byte(raw), &data); err != nil {
		t.Fatal(err)
	}
	if r := data.Routers["r@file"]; r.Status != "enabled" || r.Rule != "Host(`a.test`)" {
		t.Errorf("router %+v", r)
	}
	if r := data.Routers["bad@file"]; r.Status != "disabled" || len(r.Error) != 1 {
		t.Errorf("faulty router %+v", r)
	}
	for url, state := range data.Services["s@file"].ServerStatus {
		if state != "UP" {
			t.Errorf("server %s is %s", url, state)
		}
	}
}

func TestExplain(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{
		"shop@file":   {Rule: "Host(`shop.test`) && PathPrefix(`/shop`)", Service: "s@file"},
		"secure@file": {Rule: "Host(`secure.test`)", Service: "s@file", TLS: &model.RouterTLS{}},
	}, map[string]*model.Service{"s@file": server(t, named(""))})
	for url, want := range map[string]string{
		"http://shop.test/shop/1": "",
		"http://shop.test/":       "shop@file PathPrefix(`/shop`) does not match",
		"http://secure.test/":     "secure@file it has tls, so it takes only https",
		"https://shop.test/shop":  "shop@file it has no tls, so it takes only http",
	} {
		answer, err := w.gateway.Explain("", "GET", url)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if answer.Router != "shop@file" || answer.Service != "s@file" {
				t.Errorf("%s: %+v", url, answer)
			}
			continue
		}
		if answer.Router != "" || len(answer.Nearest) == 0 {
			t.Errorf("%s: %+v", url, answer)
			continue
		}
		first := answer.Nearest[0]
		if got := first.Router + " " + strings.Join(first.Why, "; "); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}
