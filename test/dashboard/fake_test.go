// Package dashboard_test looks at the dashboard as browsers, attackers and operators do, with and without a daemon.
package dashboard_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/child"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/probe"
	"fairlead/internal/explain/ports"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/proxy"
	"fairlead/test/daemons"
)

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{proxy.Role: proxy.Main, daemons.Role: daemons.Main, daemons.CLIRole: daemons.CLI,
		serving.Role: serving.Main})
	os.Exit(m.Run())
}

// fake is a daemon that answers with given values, and counts what it is asked.
type fake struct {
	socket string
	mu     sync.Mutex
	values map[string]any
	// asked counts requests by path and query.
	asked  map[string]int
	posted []string
}

// newFake serves a fake daemon at a unix socket until the test ends.
func newFake(t *testing.T, values map[string]any) *fake {
	t.Helper()
	f := &fake{socket: filepath.Join(t.TempDir(), "s"), values: values, asked: map[string]int{}}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(f)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return f
}

// ServeHTTP answers with the value of the path.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[r.URL.RequestURI()]++
	if r.Method == http.MethodPost {
		text, _ := io.ReadAll(r.Body)
		f.posted = append(f.posted, r.URL.Path+" "+strings.TrimSpace(string(text)))
	}
	value, ok := f.values[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		value = admin.Error{Code: api.NotFound, Message: "there is none"}
	}
	_ = json.NewEncoder(w).Encode(value)
}

// requests returns how many requests the daemon got.
func (f *fake) requests() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.asked {
		n += of
	}
	return n
}

// set changes what the daemon answers at a path.
func (f *fake) set(path string, value any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values[path] = value
}

// room is a host that is examined: it has given ports and an explanation.
type room struct {
	host        doctor.Host
	explanation flow.Explanation
	// entered gets a value when an explanation begins, and leave lets it end; both can be nil.
	entered, leave chan struct{}
}

func (r *room) Host(context.Context) (doctor.Host, error)  { return r.host, nil }
func (r *room) Kernel(context.Context) (plan.Facts, error) { return plan.Facts{}, nil }
func (r *room) Flow(ctx context.Context, _ flow.Flow, _ *probe.Options) (flow.Explanation, error) {
	if r.entered != nil {
		r.entered <- struct{}{}
		<-r.leave
	}
	return r.explanation, ctx.Err()
}

// served serves a dashboard over TCP until the test ends, without a credential.
func served(t *testing.T, f *fake, change func(*dashboard.Options)) *httptest.Server {
	t.Helper()
	o := dashboard.Options{Daemon: admin.NewClient(f.socket), Host: &room{}, Name: "host1", Version: "devel",
		Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	d := dashboard.New(o)
	s := httptest.NewServer(d)
	t.Cleanup(func() { d.Close(); s.Close() })
	return s
}

// get returns the status and the body of a page.
func get(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, r, headers...)
}

// do sends a request with headers: pairs of names and values. A header Host replaces the name of the server.
func do(t *testing.T, r *http.Request, headers ...string) (*http.Response, string) {
	t.Helper()
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, string(text)
}

// pages are the pages of a dashboard, with the questions of those that need one.
var pages = []string{"/", "/ports", "/paths", "/services", "/service?name=web", "/explain?from=192.0.2.7&to=:8080",
	"/flows", "/events", "/lab", "/routers", "/routers?url=http://shop/", "/certificates", "/cluster"}

// webService is a service with one server that is up and one that its check finds down.
func webService(now time.Time) api.ServiceView {
	server := func(at string, state api.RealStatus, cause, found string) api.RealView {
		return api.RealView{Address: netip.MustParseAddr(at), Port: 8080, Weight: 1, Share: 100, State: state,
			Cause: cause,
			Since: now.Add(-3 * time.Minute), Checked: now.Add(-2 * time.Minute), Found: found,
			Latency: 1500 * time.Microsecond}
	}
	return api.ServiceView{VirtualService: model.VirtualService{Name: "web", Proto: model.TCP,
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.80")}, Ports: []model.PortRange{model.Port(80)}},
		PlaneInUse: model.PlaneEBPF, Status: api.ServiceUp, Servers: []api.RealView{
			server("10.0.0.2", api.RealUp, "", "200 OK"),
			server("10.0.0.3", api.RealDown, "check failed 3 times: connection refused", "connection refused")}}
}

// values are what a host with one service answers.
func values(now time.Time) map[string]any {
	return map[string]any{
		"/v1/services": admin.Services{Services: []api.ServiceView{webService(now)}},
		"/v1/events": admin.Events{Events: []api.Event{{Time: now.Add(-3 * time.Minute), Kind: api.RealIsDown,
			Object: "service web real 10.0.0.3:8080", Detail: "check failed 3 times: connection refused"}}},
		"/v1/attachments": admin.Attachments{}, "/v1/networks": admin.Networks{}, "/v1/stats": api.Stats{},
	}
}

// many is a host with n real servers.
func many(n int, now time.Time) map[string]any {
	all := values(now)
	s := webService(now)
	s.Servers = nil
	for i := range n {
		at := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		s.Servers = append(s.Servers, api.RealView{Address: at,
			Port: 80, Weight: i, Share: 100, State: api.RealUp, Since: now})
	}
	all["/v1/services"] = admin.Services{Services: []api.ServiceView{s}}
	return all
}

// aPort is a port that a process of a container has.
func aPort() ports.Port {
	return ports.Port{Proto: model.TCP, Addresses: []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()},
		Ports: model.Port(8080), Process: &ports.Process{PID: 7, Command: "nginx"}, Sandbox: "shop", Network: "web",
		Modes: []ports.Mode{ports.NAT}, To: netip.MustParseAddr("10.0.0.2"), ToPorts: model.Port(80),
		Reach: ports.Reach{LAN: rules.Yes, Host: rules.Yes}}
}

// post sends a form and returns the status.
func post(t *testing.T, url, body string, headers ...string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, _ := do(t, r, headers...)
	return answer.StatusCode
}

// logTo returns a log that writes to a file.
func logTo(t *testing.T, file string) *slog.Logger {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return slog.New(slog.NewTextHandler(f, nil))
}
