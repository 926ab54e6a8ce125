package look_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/frontend/dashboard/atgateway"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/entries"
	wanted "fairlead/internal/model/gateway"
	"fairlead/test/browser"
)

// TestUpdateKeepsThePlace changes what a page shows while its reader types, has opened a table and has scrolled: the
// page gets the change, and stays where it was.
func TestUpdateKeepsThePlace(t *testing.T) {
	d := newDaemon(t, plain)
	p := browser.Start(t, nil).Page(t, browser.View{Width: 800, Height: 300})
	p.Open(serveHost(t, d, plain) + "/services")
	p.Value(`document.querySelector("input[type=search]").focus()`, nil)
	p.Type("172")
	p.Value(`document.querySelector("figure details").open = true; scrollTo(0, 150)`, nil)
	p.Value(`document.querySelector("#main").dataset.same = "yes"; document.querySelector("input").same = true`, nil)
	d.change(func() {
		s := d.services[0]
		s.Servers = append([]api.RealView{}, s.Servers...)
		s.Servers[0].State, s.Servers[0].Cause = api.RealDown, "the cable was pulled"
		d.services = append([]api.ServiceView{s}, d.services[1:]...)
	})
	p.Wait(`document.body.innerText.includes("the cable was pulled")`)
	if got := p.Text(`[document.activeElement.same, document.activeElement.value, scrollY,
		document.querySelector("figure details").open, document.querySelector("#main").dataset.same]`); got !=
		"true,172,150,true,yes" {
		t.Errorf("after the update: %s", got)
	}
	check(t, p, "after an update")
	p.Value(`dispatchEvent(new Event("pagehide"))`, nil) // the stream ends: what is left is counted by the page
	p.Value(`window.left = document.querySelector("time[data-left]").textContent`, nil)
	p.Wait(`/^[34]m\d+s$/.test(left) && document.querySelector("time[data-left]").textContent != left`)
}

// TestButton presses a button of a real server: the dashboard accepts the form as a browser sends it.
func TestButton(t *testing.T) {
	d := newDaemon(t, plain)
	p := browser.Start(t, nil).Page(t, desktop)
	p.Open(serveHost(t, d, plain, func(o *dashboard.Options) { o.Actions = true }) + "/services")
	p.Value(`window.before = true, setTimeout(() => document.querySelector("form.row button").click())`, nil)
	p.Wait(`!window.before && document.readyState == "complete" && location.pathname == "/services"`)
	if got := locked(d, &d.changed); len(got) != 1 || got[0].Do != api.EnableReal {
		t.Errorf("the daemon got %v", got)
	}
}

// gatewayPages are the pages at a gateway, with a text that each must show.
var gatewayPages = map[string]string{"/dashboard/": "absent@docker", "/dashboard/routers": "shop.example.com",
	"/dashboard/routers?url=http://shop.example.com/cart": "shop@docker", "/dashboard/certificates": "certificate"}

// TestGatewayShowsItself opens the pages at a router to api@internal of a gateway that serves, as users of Traefik do.
func TestGatewayShowsItself(t *testing.T) {
	at, _ := serveGateway(t, "/")
	b := browser.Start(t, nil)
	for _, v := range []browser.View{telephone, desktop} {
		p := b.Page(t, v)
		p.Open(at + "/")
		if got := p.Text("location.pathname"); got != "/dashboard/" {
			t.Errorf("/ redirects to %s", got)
		}
		for path, text := range gatewayPages {
			p.Open(at + path)
			if got := p.Text("document.body.innerText"); !strings.Contains(got, text) {
				t.Errorf("%s: the page lacks %q:\n%.3000s", path, text, got)
			}
			check(t, p, path)
			snap(p, "gateway", path, "-", v.Width)
		}
		if got := p.Text(`[...document.querySelectorAll("nav a")].map(a => a.getAttribute("href")).join()`); got !=
			"/dashboard/,/dashboard/routers,/dashboard/certificates" {
			t.Errorf("the pages are %s", got)
		}
	}
}

// TestBasePath uses the pages of a gateway below api.basePath: links, forms, the filter, style, script and stream stay
// below it.
func TestBasePath(t *testing.T) {
	at, g := serveGateway(t, "/traefik")
	p := browser.Start(t, nil).Page(t, desktop)
	p.Open(at + "/traefik")
	p.Wait(`document.querySelector("#state.live") && getComputedStyle(document.querySelector("nav ul")).display == "flex"`)
	p.Value(`document.querySelector("nav a[href$=routers]").click()`, nil)
	p.Wait(`location.pathname == "/traefik/dashboard/routers" && document.readyState == "complete"`)
	config := shownConfig()
	config.HTTP.Routers["late@docker"] = &wanted.Router{Rule: "Host(`late.example.com`)", Service: "shop@docker"}
	g.Apply(config, nil)
	p.Wait(`document.body.innerText.includes("late.example.com")`)
	p.Value(`document.querySelector("input[type=search]").focus()`, nil)
	p.Type("late@docker")
	p.Wait(`location.search == "?q=late%40docker" && !document.body.innerText.includes("absent@docker")`)
	p.Value(`document.querySelector("form.ask input[name=url]").value = "http://shop.example.com/cart",
		setTimeout(() => document.querySelector("form.ask button").click())`, nil)
	p.Wait(`location.search.includes("url=") && document.body.innerText.includes("shop@docker")`)
	if got := p.Text(`[...document.querySelectorAll("[href], [src], [action]")].flatMap(e => ["href", "src",
		"action"].map(a => e.getAttribute(a)).filter(to => to && !/^#|^[/]traefik[/]dashboard[/]/.test(to))).join()`); got !=
		"" {
		t.Errorf("links that leave the base path: %s", got)
	}
	p.Open(p.Text("location.href"))
	check(t, p, "the answer below the base path")
}

// shownConfig has the objects of newGateway, and a router to the API.
func shownConfig() *wanted.Config {
	config := gatewayConfig(plain)
	config.HTTP.Routers["dashboard@docker"] = &wanted.Router{Rule: "PathPrefix(`/`)", Service: "api@internal"}
	return config
}

// serveGateway runs a gateway with shownConfig until the test ends. base is api.basePath.
func serveGateway(t testing.TB, base string) (address string, g *gateway.Gateway) {
	t.Helper()
	static := wanted.Static{EntryPoints: []wanted.EntryPoint{{Name: "web", Address: "127.0.0.1:0"}},
		Default: []string{"web"}, API: &wanted.API{Dashboard: true, BasePath: base}}
	g, err := gateway.New(static, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	g.AddDashboard(atgateway.New("test"))
	g.Apply(shownConfig(), nil)
	sockets, err := entries.Listen(static.EntryPoints)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, sockets) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + sockets["web"].TCP.Addr().(*net.TCPAddr).String(), g
}

// TestGatewayKeepsTheAPI: beside the pages, the paths of Traefik's API answer as before, and the pages have the same
// content security policy as the daemon's.
func TestGatewayKeepsTheAPI(t *testing.T) {
	at, _ := serveGateway(t, "/")
	for path, want := range map[string]string{"/api/version": `{"Version":"fairlead"`,
		"/api/http/routers/shop@docker": `{"name"`,
		"/dashboard/":                   "<!doctype html>"} {
		answer, err := http.Get(at + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: %.100s, %v", path, text, err)
		}
		policy := answer.Header.Get("Content-Security-Policy")
		if page := strings.HasPrefix(path, "/dashboard"); page != strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
	}
}
