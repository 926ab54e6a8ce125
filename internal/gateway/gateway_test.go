package gateway_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/accesslog"
	"fairlead/internal/gateway/entries"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
	"fairlead/test/place"
)

// world is a running gateway with one entry point, web.
type world struct {
	t       *testing.T
	gateway *gateway.Gateway
	address string
	client  *http.Client
	// stop ends the gateway; the test waits for that.
	stop    func()
	sockets entries.Sockets
}

// newWorld starts a gateway. Each function of prepare is called before it serves.
func newWorld(t *testing.T, static model.Static, prepare ...func(*gateway.Gateway)) *world {
	t.Helper()
	return newLoggedWorld(t, static, slog.New(slog.DiscardHandler), prepare...)
}

// newLoggedWorld is newWorld with a log.
func newLoggedWorld(t *testing.T, static model.Static, log *slog.Logger, prepare ...func(*gateway.Gateway)) *world {
	t.Helper()
	if len(static.EntryPoints) == 0 {
		static.EntryPoints = []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0"}}
	}
	static.Default = []string{"web"}
	g, err := gateway.New(static, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range prepare {
		do(g)
	}
	if l := static.AccessLog; l != nil && l.FilePath != "" {
		file, err := accesslog.Open(l.FilePath)
		if err != nil {
			t.Fatal(err)
		}
		g.LogTo(file)
	}
	listeners, err := entries.Listen(static.EntryPoints)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, listeners) }()
	w := &world{t: t, gateway: g, address: listeners["web"].TCP.Addr().String(), stop: cancel,
		sockets: listeners}
	w.client = &http.Client{CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	},
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, w.address)
		}}}
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(place.Timeout):
			t.Error("the gateway does not end")
		}
	})
	return w
}

// apply puts routers and services to use.
func (w *world) apply(routers map[string]*model.Router, services map[string]*model.Service) []status.Status {
	return w.gateway.Apply(&model.Config{HTTP: model.HTTP{Routers: routers, Services: services}}, nil)
}

// get returns the status and body of the answer to a request.
func (w *world) get(url string, headers ...string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	answer, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// server starts an HTTP server and returns a service with it.
func server(t *testing.T, h http.HandlerFunc) *model.Service {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return serviceOf(s.URL)
}

func serviceOf(urls ...string) *model.Service {
	var servers []model.Server
	for _, u := range urls {
		servers = append(servers, model.Server{URL: u})
	}
	return &model.Service{LoadBalancer: &model.LoadBalancer{Servers: servers}}
}

// named answers with a text.
func named(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func TestRouting(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{
		"shop@file":  {Rule: "Host(`shop.test`)", Service: "shop@file"},
		"api@file":   {Rule: "Host(`shop.test`) && PathPrefix(`/api`)", Service: "api@file"},
		"every@file": {Rule: "PathPrefix(`/`)", Service: "every@file", Priority: 1},
		"first@file": {Rule: "Path(`/first`)", Service: "first@file", Priority: 1000},
		"ipv6@file":  {Rule: "Host(`[2001:DB8:0::1]`)", Service: "api@file"},
	}, map[string]*model.Service{
		"shop@file": server(t, named("shop")), "api@file": server(t, named("api")),
		"every@file": server(t, named("every")), "first@file": server(t, named("first")),
	})
	for url, want := range map[string]string{
		"http://shop.test/":            "shop",
		"http://SHOP.test:8080/":       "shop",
		"http://shop.test./x":          "shop",
		"http://shop.test/api/v1":      "api",
		"http://shop.test/x/../api/v1": "api",
		"http://shop.test/%61pi":       "api",
		"http://shop.test/%2Fapi":      "shop",
		"http://other.test/":           "every",
		"http://[2001:db8::0:1]:8080/": "api",
		"http://shop.test/first":       "first",
	} {
		if status, body := w.get(url); status != 200 || body != want {
			t.Errorf("%s: %d %q, want %q", url, status, body, want)
		}
	}
}

func TestAnswersWithoutServer(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{
		"none@file":  {Rule: "Host(`none.test`)", Service: "none@file"},
		"gone@file":  {Rule: "Host(`gone.test`)", Service: "gone@file"},
		"wrong@file": {Rule: "Host(`wrong.test`", Service: "none@file"},
	}, map[string]*model.Service{"none@file": serviceOf(), "gone@file": serviceOf("http://" + refusingAddress(t))})
	for url, want := range map[string]int{
		"http://none.test/":  http.StatusServiceUnavailable,
		"http://gone.test/":  http.StatusBadGateway,
		"http://wrong.test/": http.StatusNotFound,
		"http://other.test/": http.StatusNotFound,
	} {
		if status, _ := w.get(url); status != want {
			t.Errorf("%s: %d, want %d", url, status, want)
		}
	}
}

// TestFaultyObjectsAreAlone checks that a faulty router has a reason, and disturbs no
// other.
func TestFaultyObjectsAreAlone(t *testing.T) {
	w := newWorld(t, model.Static{})
	statuses := w.apply(map[string]*model.Router{
		"good@file":   {Rule: "Host(`good.test`)", Service: "good@file"},
		"rule@file":   {Rule: "Hots(`x`)", Service: "good@file"},
		"entry@file":  {Rule: "Host(`x`)", Service: "good@file", EntryPoints: []string{"nowhere"}},
		"where@file":  {Rule: "Host(`x`)", Service: "goood@file"},
		"middle@file": {Rule: "Host(`x`)", Service: "good@file", Middlewares: []string{"absent@file"}},
		"cycle@file":  {Rule: "Host(`x`)", Service: "one@file"},
	}, map[string]*model.Service{
		"good@file": server(t, named("good")),
		"one@file":  {Failover: &model.Failover{Service: "two@file", Fallback: "good@file"}},
		"two@file":  {Failover: &model.Failover{Service: "one@file", Fallback: "good@file"}},
	})
	if _, body := w.get("http://good.test/"); body != "good" {
		t.Errorf("the good router answers %q", body)
	}
	want := map[string]string{
		"rule@file": "Hots", "entry@file": "nowhere", "where@file": "do you mean good@file?",
		"middle@file": "absent@file", "cycle@file": "disabled", "good@file": "",
	}
	for _, s := range statuses {
		text, ok := want[s.Name]
		if s.Kind != "router" || !ok {
			continue
		}
		delete(want, s.Name)
		if reasons := strings.Join(s.Reasons, "\n"); (text == "") != (s.State == status.Enabled) ||
			!strings.Contains(reasons, text) {
			t.Errorf("%s is %s: %q, want %q", s.Name, s.State, reasons, text)
		}
	}
	if len(want) > 0 {
		t.Errorf("no status of %v", want)
	}
}

func TestForwardedHeaders(t *testing.T) {
	var got http.Header
	echo := func(w http.ResponseWriter, r *http.Request) { got = r.Header.Clone(); got.Set("Host", r.Host) }
	for _, s := range []struct {
		name    string
		trusted []string
		send    []string
		want    map[string]string
	}{
		{"a stranger's headers are replaced", nil,
			[]string{"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Proto", "https", "X-Real-Ip", "6.6.6.6",
				"X_Forwarded_For",
				"6.6.6.6", "Forwarded", "for=6.6.6.6"},
			map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Real-Ip": "127.0.0.1",
				"X-Forwarded-Host": "a.test", "X-Forwarded-Port": "80", "Host": "a.test", "X_forwarded_for": "",
				"Forwarded": ""}},
		{"a stranger's other X-Forwarded headers are removed", nil,
			[]string{"X-Forwarded-Ssl", "on", "X-Forwarded-Scheme", "https", "X-Forwarded-User", "root",
				"X-Forwarded-Email", "root@a.test", "X-Forwarded-Groups", "admin", "X-Forwarded-Client-Cert", "By=x",
				"X-Forwarded-Access-Token", "t", "X_Forwarded_User", "root", "X-Forwarded-Anything", "x"},
			map[string]string{"X-Forwarded-Ssl": "", "X-Forwarded-Scheme": "", "X-Forwarded-User": "",
				"X-Forwarded-Email": "", "X-Forwarded-Groups": "", "X-Forwarded-Client-Cert": "",
				"X-Forwarded-Access-Token": "", "X_forwarded_user": "", "X-Forwarded-Anything": ""}},
		{"a trusted proxy's other X-Forwarded headers stay", []string{"127.0.0.0/8"}, []string{"X-Forwarded-User", "ann"},
			map[string]string{"X-Forwarded-User": "ann"}},
		{"a trusted proxy's headers stay", []string{"127.0.0.0/8"},
			[]string{"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Proto", "https"},
			map[string]string{"X-Forwarded-For": "6.6.6.6, 127.0.0.1", "X-Forwarded-Proto": "https",
				"X-Forwarded-Port": "443"}},
		{"Connection cannot remove them", nil, []string{"Connection", "X-Forwarded-For, X-Real-Ip"},
			map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1"}},
		{"Connection cannot remove what a middleware sets", nil, []string{"Connection", "X-User, close", "X-User", "me"},
			map[string]string{"X-User": "ann"}},
	} {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0",
				TrustedProxies: s.trusted}}})
			w.gateway.Apply(&model.Config{HTTP: model.HTTP{
				Routers: map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file",
					Middlewares: []string{"user@file"}}},
				Middlewares: map[string]*model.Middleware{"user@file": {Headers: &model.Headers{
					CustomRequestHeaders: map[string]string{"X-User": "ann"}}}},
				Services: map[string]*model.Service{"s@file": server(t, echo)}}}, nil)
			w.get("http://a.test/", s.send...)
			for name, want := range s.want {
				if have := strings.Join(got[name], "|"); have != want && got.Get(name) != want {
					t.Errorf("%s is %q, want %q", name, have, want)
				}
			}
		})
	}
}

// TestRedirection checks the redirection of a whole entry point.
func TestRedirection(t *testing.T) {
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{
		{Name: "web", Address: "127.0.0.1:0", Redirect: &model.Redirection{To: ":8443", Permanent: true}},
	}})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Host(`a.test`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": server(t, named("plain"))})
	answer, err := w.client.Get("http://a.test/x?y=1")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if at := answer.Header.Get("Location"); answer.StatusCode != http.StatusMovedPermanently ||
		at != "https://a.test:8443/x?y=1" {
		t.Errorf("%d to %q", answer.StatusCode, at)
	}
}
