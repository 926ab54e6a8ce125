package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/view"
	model "fairlead/internal/model/gateway"
)

// pages is a dashboard whose pages are their paths, and whose stream lasts until Close.
type pages struct {
	gateway.Shown
	once  sync.Once
	ended chan struct{}
}

func (p *pages) Close() { p.once.Do(func() { close(p.ended) }) }

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "page %s of %s\n", r.URL.Path, p.Base)
	if r.URL.Path == p.Base+"/stream" {
		_ = http.NewResponseController(w).Flush()
		<-p.ended
	}
}

// dashboardWorld is a gateway with routers to its API and to its dashboard. It returns the dashboard that was made, nil
// if none was.
func dashboardWorld(t *testing.T, static model.Static) (w *world, made *pages) {
	t.Helper()
	w = newWorld(t, static, func(g *gateway.Gateway) {
		g.AddDashboard(func(s gateway.Shown) gateway.Dashboard {
			made = &pages{Shown: s, ended: make(chan struct{})}
			return made
		})
	})
	w.gateway.Apply(&model.Config{HTTP: model.HTTP{
		Routers: map[string]*model.Router{
			"api@file":   {Rule: "Host(`api.test`)", Service: "api@internal"},
			"pages@file": {Rule: "Host(`pages.test`)", Service: "dashboard@internal"},
			"stripped@file": {Rule: "Host(`stripped.test`)", Service: "dashboard@internal",
				Middlewares: []string{"strip@file"}},
			"replaced@file": {Rule: "Host(`replaced.test`)", Service: "dashboard@internal",
				Middlewares: []string{"replace@file"}},
			"shop@file": {Rule: "Host(`shop.test`)", Service: "shop@file"}},
		Middlewares: map[string]*model.Middleware{"replace@file": {ReplacePathRegex: &model.ReplacePathRegex{
			Regex: "^/monitor/", Replacement: "/"}},
			"strip@file": {StripPrefix: &model.StripPrefix{
				Prefixes: []string{"/dashboard/", "/dashboard"}}}},
		Services: map[string]*model.Service{"shop@file": server(t, named("shop"))}}}, nil)
	return w, made
}

// TestDashboard asks routers to api@internal and to dashboard@internal for pages and for the API.
func TestDashboard(t *testing.T) {
	w, _ := dashboardWorld(t, model.Static{API: &model.API{Dashboard: true}})
	for url, want := range map[string]string{
		"api.test/dashboard/":           "200 page /dashboard/ of /dashboard\n",
		"api.test/dashboard/routers":    "200 page /dashboard/routers of /dashboard\n",
		"pages.test/dashboard/routers":  "200 page /dashboard/routers of /dashboard\n",
		"stripped.test/dashboard/":      "200 page /dashboard/ of /dashboard\n",
		"stripped.test/dashboard/a%2Fb": "200 page /dashboard/a/b of /dashboard\n",
		"api.test/api/version":          `200 {"Version":"fairlead"`,
		"pages.test/api/version":        `200 {"Version":"fairlead"`,
		"replaced.test/monitor/routers": "200 page /dashboard/routers of /dashboard\n",
		"stripped.test/api/version":     `200 {"Version":"fairlead"`,
		"api.test/dashboards":           "404 ",
		"shop.test/dashboard/":          "200 shop",
	} {
		if status, body := w.get("http://" + url); !strings.HasPrefix(fmt.Sprint(status, " ", body), want) {
			t.Errorf("%s: %d %q, want %q", url, status, body, want)
		}
	}
	for _, url := range []string{"http://api.test/", "http://api.test/dashboard", "http://pages.test/dashboard"} {
		answer, err := w.client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if to := answer.Header.Get("Location"); answer.StatusCode != http.StatusFound || to != "/dashboard/" {
			t.Errorf("%s: %s to %q", url, answer.Status, to)
		}
	}
}

// TestBasePath asks for the API and the pages below api.basePath, and at paths that are not below it.
func TestBasePath(t *testing.T) {
	static := model.Static{API: &model.API{Dashboard: true, Insecure: true, BasePath: "/a/traefik"},
		EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0"}, {Name: "traefik",
			Address: "127.0.0.1:0"}}}
	w, made := dashboardWorld(t, static)
	ask := func(hosts []string, all map[string]string) {
		t.Helper()
		for _, host := range hosts {
			for path, want := range all {
				status, body := w.get("http://" + host + path)
				if !strings.HasPrefix(fmt.Sprint(status, " ", body), want) {
					t.Errorf("%s%s: %d %q, want %q", host, path, status, body, want)
				}
			}
		}
	}
	with := map[string]string{"/a/traefik": "302", "/a/traefik/": "302", "/a/traefik/dashboard": "302",
		"/a/traefik/dashboard/routers": "200 page /a/traefik/dashboard/routers of /a/traefik/dashboard\n",
		"/a/traefik/api/version":       `200 {"Version":"fairlead"`, "/a/traefik/api/rawdata": "200",
		"/a/traefik/api/http/routers/api@file": "200", "/a/traefik/api/http/routers/%61pi@file": "200",
		"/a/traefik/api/none": "404", "/a/traefik/none": "404"}
	without := map[string]string{"/": "404", "/dashboard": "404", "/dashboard/": "404", "/api/version": "404",
		"/a/": "404", "/a/traefikdashboard/": "404", "/a/traefikapi/version": "404",
		"/traefik/api/version": "404", "/a/traefik/a/traefik/api/version": "404"}
	ask([]string{"api.test", "pages.test"}, with)
	ask([]string{"api.test", "pages.test"}, without)
	ask([]string{"stripped.test"}, map[string]string{
		"/dashboard/routers": "200 page /a/traefik/dashboard/routers of /a/traefik/dashboard\n",
		"/dashboard/":        "200 page /a/traefik/dashboard/ of", "/a/traefik/api/version": "200"})
	var version map[string]any
	if err := made.Read(t.Context(), "/api/version", &version); err != nil {
		t.Errorf("the pages read the API: %v", err)
	}
	w.address = w.sockets["traefik"].TCP.Addr().String()
	w.client.CloseIdleConnections()
	ask([]string{"insecure.test"}, with)
	ask([]string{"insecure.test"}, without)
}

// TestStoredBasePath: an earlier daemon has stored any text as api.basePath. The gateway serves, and the API is where it
// was.
func TestStoredBasePath(t *testing.T) {
	for _, base := range []string{"traefik", "/a/../b", "//evil.example", "/{x", "/a b", "/a`)||PathPrefix(`/"} {
		w, _ := dashboardWorld(t, model.Static{API: &model.API{Dashboard: true, Insecure: true, BasePath: base},
			EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0"}, {Name: "traefik",
				Address: "127.0.0.1:0"}}})
		w.address = w.sockets["traefik"].TCP.Addr().String()
		for path, want := range map[string]int{"/api/version": http.StatusOK, "/b/api/version": http.StatusNotFound} {
			if status, body := w.get("http://insecure.test" + path); status != want {
				t.Errorf("%q: %s: %d %q", base, path, status, body)
			}
		}
	}
}

// TestNoDashboard: without api.dashboard there is the API alone, also at dashboard@internal.
func TestNoDashboard(t *testing.T) {
	w, made := dashboardWorld(t, model.Static{API: &model.API{}})
	if made != nil {
		t.Error("a dashboard was made")
	}
	for url, want := range map[string]int{"api.test/dashboard/": 404, "api.test/": 404, "pages.test/dashboard/": 404,
		"api.test/api/version": 200, "pages.test/api/version": 200} {
		if status, _ := w.get("http://" + url); status != want {
			t.Errorf("%s: %d, want %d", url, status, want)
		}
	}
}

// TestInsecureDashboard: with api.insecure, the entry point traefik has the pages without a router of a user.
func TestInsecureDashboard(t *testing.T) {
	at := []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0"}, {Name: "traefik", Address: "127.0.0.1:0"}}
	for _, on := range []bool{true, false} {
		w, _ := dashboardWorld(t, model.Static{API: &model.API{Insecure: true, Dashboard: on}, EntryPoints: at})
		if status, _ := w.get("http://a.test/dashboard/"); status != http.StatusNotFound {
			t.Errorf("the entry point web answers %d", status)
		}
		w.address = w.sockets["traefik"].TCP.Addr().String()
		w.client.CloseIdleConnections()
		for path, want := range map[string]int{"/": 302, "/dashboard": 302, "/dashboard/": 200,
			"/dashboard/routers": 200} {
			if !on {
				want = 404
			}
			if status, _ := w.get("http://a.test" + path); status != want {
				t.Errorf("dashboard %v: GET %s: %d, want %d", on, path, status, want)
			}
		}
		if status, _ := w.get("http://a.test/api/version"); status != http.StatusOK {
			t.Errorf("the API answers %d", status)
		}
	}
}

// TestStreamsDoNotKeepAGateway: a page that follows changes must not keep a process that another one has replaced, nor
// one that is stopped.
func TestStreamsDoNotKeepAGateway(t *testing.T) {
	for name, end := range map[string]func(*world){"Leave": func(w *world) { w.gateway.Leave() },
		"stop": func(w *world) { w.stop() }} {
		t.Run(name, func(t *testing.T) {
			w, _ := dashboardWorld(t, model.Static{API: &model.API{Dashboard: true}})
			answer, err := w.client.Get("http://api.test/dashboard/stream")
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			in := bufio.NewReader(answer.Body)
			if line, err := in.ReadString('\n'); err != nil {
				t.Fatal(line, err)
			}
			end(w)
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v", rest, err)
			} // newWorld waits for the end
		})
	}
}

// TestDashboardReads: the pages get the API's answers, and the counters of requests, also without metrics.
func TestDashboardReads(t *testing.T) {
	w, made := dashboardWorld(t, model.Static{API: &model.API{Dashboard: true}})
	w.get("http://shop.test/")
	w.get("http://none.test/")
	w.get("http://api.test/api/version") // the gateway's own services do not count
	var raw view.RawData
	var routers []view.Router
	var answer shown.Answer
	for path, into := range map[string]any{"/api/rawdata": &raw, "/api/http/routers?search=shop": &routers,
		"/api/explain?url=http://shop.test/": &answer} {
		if err := made.Read(t.Context(), path, into); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if len(raw.Routers) != 5 || len(routers) != 1 || routers[0].Name != "shop@file" || answer.Router != "shop@file" {
		t.Errorf("%d routers; found %v; %+v", len(raw.Routers), routers, answer)
	}
	if err := made.Read(t.Context(), "/api/http/routers/none", &raw); err == nil {
		t.Error("a router that does not exist was read")
	}
	eventually(t, "the requests are counted", func() error {
		if got := made.Totals(); !got.Counted || got.Requests != 2 || got.ClientErrors != 1 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}
