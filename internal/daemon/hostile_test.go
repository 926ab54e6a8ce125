package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/daemon"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/admin/admintest"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// socketAPI is a daemon behind its socket. It finds only one sandbox, so that no hostile
// request reaches a sandbox of the machine.
type socketAPI struct {
	*world
	socket string
	http   http.Client
}

type onlyOne struct{ at sandbox.Sandbox }

func (o onlyOne) Resolve(_ context.Context, text string) (sandbox.Sandbox, error) {
	if text == o.at.Ref {
		return o.at, nil
	}
	return sandbox.Sandbox{}, fmt.Errorf("find sandbox %s: %w", text, sandbox.ErrAbsent)
}

func (onlyOne) Watch(context.Context) (<-chan struct{}, error) { return nil, nil }

func newAPI(t testing.TB) *socketAPI {
	t.Helper()
	w := newWorld(t)
	b := w.watchedSandbox()
	w.sandboxes = onlyOne{sandbox.Sandbox{Ref: "netns:shop", Kind: sandbox.Netns, Name: "shop", Path: "/proc/" + b.pid +
		"/ns/net"}}
	w.start()
	a := &socketAPI{world: w, socket: admintest.Serve(t, calls(w.Daemon))}
	a.http.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn,
		error) {
		return net.Dial("unix", a.socket)
	}}
	return a
}

// calls returns the calls that the API makes.
func calls(d *daemon.Daemon) admin.Daemon {
	return admin.Daemon{Attachments: d, Publishes: d, Networks: d, Services: d, Specs: d, Events: d, Stats: d}
}

// ask returns the status of the answer. It fails the test if there is none.
func (a *socketAPI) ask(path, body string) int {
	a.Helper()
	r, err := a.http.Post("http://x"+path, "application/json", strings.NewReader(body))
	if err != nil {
		a.Fatalf("%s %.300q: %v", path, body, err)
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		a.Fatal(err)
	}
	return r.StatusCode
}

// requests are valid requests, for the tests to spoil.
var requests = map[string]string{
	"/v1/networks/create": `{"name":"web","driver":"bridge","subnets":[{"prefix":"10.1.0.0/24","gateway":"10.1.0.9"}],"mtu":1400,"vlan":7,"overlay":{"vni":7,"peers":[{"address":"192.0.2.1"}]},"dryRun":true}`,
	"/v1/networks/remove": `{"name":"nothing"}`,
	"/v1/networks/check":  `{"name":"lan"}`,
	"/v1/attach":          `{"network":"lan","sandbox":"netns:shop","name":"shop","interface":"eth1","addresses":["172.30.0.7"],"mac":"02:00:00:00:00:01","gateways":["172.30.0.1"],"routes":[{"to":"10.0.0.0/8","via":"172.30.0.1"}],"limit":{"out":100000000},"keep":true,"dryRun":true}`,
	"/v1/detach":          `{"name":"nothing","dryRun":true}`,
	"/v1/publish":         `{"target":"shop","publishes":[{"via":"auto","proto":"tcp","hostAddr":"127.0.0.1","hostPorts":{"first":80,"last":81},"ports":{"first":80,"last":81},"promises":["lan"]}],"dryRun":true}`,
	"/v1/unpublish":       `{"target":"shop","publishes":[{"proto":"udp","hostPorts":{"first":80,"last":80},"ports":{"first":80,"last":80}}],"dryRun":true}`,
	"/v1/apply":           `{"set":"x","networks":[{"name":"web","driver":"routed","subnets":[{"prefix":"fd00:1::/64"}]}],"attachments":[{"network":"web","sandbox":"container:db","name":"db","publishes":[{"via":"nat","proto":"tcp","hostPorts":{"first":80,"last":80},"ports":{"first":80,"last":80}}]}],"dryRun":true}`,
}

// tricks are names that have another meaning in a path, a link name, a key or a line
// of text.
var tricks = []string{"", ".", "..", "../x", "../../etc/passwd", "/etc/passwd", "a/b", "-x", "--help", "a\x00b", "a\nb",
	"a\tb", "\x1b[2J", strings.Repeat("x", 300),
	strings.Repeat("x", 1<<16), "a\u202eb", "a\u200bb", "\ufeff", "%s%n", "$(reboot)", "`reboot`", "'; drop",
	"fairlead:x", "café", "名前"}

// TestHostileNames uses the tricks wherever a request has a name.
func TestHostileNames(t *testing.T) {
	a := newAPI(t)
	a.network(lan)
	before := a.snapshot()
	good := map[string]bool{"%s%n": true, "$(reboot)": true, "`reboot`": true, "'; drop": true, "fairlead:x": true,
		"café": true, "名前": true}
	client := admin.NewClient(a.socket)
	for _, name := range tricks {
		n := lan
		n.Name, n.Subnets = name, nil
		n.Subnets = append(n.Subnets, model.Subnet{Prefix: prefix("10.2.0.0/24")})
		_, err := admin.CreateNetwork.Do(t.Context(), client, admin.NetworkRequest{Network: n})
		if (err == nil) != good[name] {
			t.Errorf("network %.40q: %v", name, err)
		}
		if _, err := admin.RemoveNetwork.Do(t.Context(), client, admin.NetworkName{Name: name}); err != nil {
			t.Errorf("network %.40q: %v", name, err)
		}
		_, err = admin.Attach.Do(t.Context(), client, api.AttachRequest{Endpoint: model.Endpoint{Network: "lan",
			Sandbox: "netns:shop", Name: name}})
		if (err == nil) != (good[name] || name == "") {
			t.Errorf("attachment %.40q: %v", name, err)
		}
		if _, err := admin.Detach.Do(t.Context(), client,
			api.DetachRequest{Network: "lan", Sandbox: "netns:shop"}); err != nil {
			t.Errorf("attachment %.40q: %v", name, err)
		}
		for _, spoil := range []func(*model.Network){
			func(n *model.Network) { n.Driver, n.Parent = model.DriverMacvlan, name },
			func(n *model.Network) { n.Driver = model.Driver(name) },
			func(n *model.Network) { n.Mode = model.Mode(name + "x") },
			func(n *model.Network) { n.Filter = model.Filter(name + "x") },
		} {
			n := model.Network{Name: "web", Driver: model.DriverBridge,
				Subnets: []model.Subnet{{Prefix: prefix("10.2.0.0/24")}}}
			spoil(&n)
			if _, err := admin.CreateNetwork.Do(t.Context(), client, admin.NetworkRequest{Network: n}); err == nil {
				t.Errorf("with %.40q this network was created: %+.200v", name, n)
			}
		}
		for _, sandbox := range []string{name, "container:" + name, "netns:" + name, "path:" + name} {
			if _, err := admin.Attach.Do(t.Context(), client,
				api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: sandbox}}); err == nil {
				t.Errorf("sandbox %.40q was attached", sandbox)
			}
		}
	}
	a.unchanged(before)
}

// TestSpoiltRequests changes valid requests at random, with a fixed seed: each is
// answered, and the daemon works as before.
func TestSpoiltRequests(t *testing.T) {
	a := newAPI(t)
	a.network(lan)
	before := a.snapshot()
	r := rand.New(rand.NewPCG(5, 23))
	for range 60 {
		for _, path := range slices.Sorted(maps.Keys(requests)) {
			if status := a.ask(path, spoilt(r, requests[path])); status >= 500 &&
				status != http.StatusInternalServerError {
				t.Errorf("%s is answered %d", path, status)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(requests)) {
		if status := a.ask(path, requests[path]); status >= 500 {
			t.Errorf("%s is answered %d", path, status)
		}
	}
	// Some were still valid, and no dry runs any more.
	if err := a.TearDown(t.Context()); err != nil {
		t.Error(err)
	}
	a.unchanged(before)
}

// spoilt changes a text in one to four places.
func spoilt(r *rand.Rand, text string) string {
	for range 1 + r.IntN(4) {
		i := r.IntN(len(text))
		j := i + r.IntN(min(len(text)-i, 20))
		with := []string{"", string(rune(r.IntN(1 << 16))), text[i:j] + text[i:j], `"`, "{", "]", "-1", "1e999",
			"99999999999999999999", "null", `"\u0000"`,
			strings.Repeat("[", 99), tricks[r.IntN(len(tricks))], `,"name":"x"`, "\xff"}[r.IntN(15)]
		if text = text[:i] + with + text[j:]; text == "" {
			return text
		}
	}
	return text
}

// TestHugeRequests sends requests of the maximum size, and limits the memory that they
// need.
func TestHugeRequests(t *testing.T) {
	a := newAPI(t)
	a.network(lan)
	a.attach(api.AttachRequest{Endpoint: model.Endpoint{Network: "lan", Sandbox: "netns:shop", Name: "shop"}})
	var publishes []string
	for i := range 9000 {
		publishes = append(publishes,
			fmt.Sprintf(`{"via":"socket","proto":"tcp","hostAddr":"10.0.%d.%d","hostPorts":{"first":1,"last":65535},"ports":{"first":1,"last":65535}}`, i/250, i%250))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, body := range []string{
		`{"target":"shop","publishes":[` + strings.Join(publishes[:7000], ",") + `]}`,
		`{"target":"shop","publishes":[` + strings.Join(publishes, ",") + `]}`,
		`{"target":"` + strings.Repeat("x", 1<<22) + `"}`,
		`{"publishes":` + strings.Repeat("[", 1<<19),
	} {
		if status := a.ask("/v1/publish", body); status != http.StatusBadRequest && status != http.StatusConflict {
			t.Errorf("%.100s… is answered %d", body, status)
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 512<<20 {
		t.Errorf("the requests needed %d MB", took>>20)
	}
}

// TestManyHalfRequests opens more connections than are served at once, and leaves each
// in the middle of a request. A later request is answered once their read timeout has
// passed.
func TestManyHalfRequests(t *testing.T) {
	a := newAPI(t)
	var half []net.Conn
	for i := range 200 {
		conn, err := net.Dial("unix", a.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		half = append(half, conn)
		// The daemon may have refused the connection already: this process has many.
		_, _ = io.WriteString(conn, []string{"P", "POST /v1/attach HTTP/1.1\r\nHost: x\r\nX-"}[i%2])
	}
	for _, conn := range half { // until the daemon closes it
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := admin.ListNetworks.Do(ctx, admin.NewClient(a.socket)); err != nil {
		t.Error(err)
	}
}

// FuzzRequests sends arbitrary requests: each is answered.
func FuzzRequests(f *testing.F) {
	for path, body := range requests {
		f.Add(path, body)
	}
	a := newAPI(f)
	f.Fuzz(func(_ *testing.T, path, body string) {
		r, err := http.NewRequest(http.MethodPost, "http://x/", strings.NewReader(body))
		if err != nil {
			return
		}
		r.URL.Path = path
		answer, err := a.http.Do(r)
		if err != nil {
			return
		}
		_, err = io.Copy(io.Discard, answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode > 500 {
			a.Fatalf("%s %q: %v %d", path, body, err, answer.StatusCode)
		}
	})
}
