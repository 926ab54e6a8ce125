package dashboard_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard"
)

// event is an event of a stream.
type event struct{ id, kind, data string }

// listen opens a stream of a page. The stream ends with the test, or by end.
func listen(t *testing.T, at, page string, headers ...string) (next func() event, answer *http.Response, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/stream?page="+url.QueryEscape(page), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err = http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<24)
	return func() (e event) {
		t.Helper()
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "id":
				e.id = value
			case "event":
				e.kind = value
			case "data":
				e.data += value + "\n"
			case "":
				return e
			}
		}
		return e
	}, answer, cancel
}

// TestStreamFollowsTheDaemon: a stream sends a page, and again when what it shows has changed.
func TestStreamFollowsTheDaemon(t *testing.T) {
	f := newFake(t, values(time.Now()))
	at := served(t, f, nil)
	next, _, _ := listen(t, at.URL, "/services")
	e := next()
	if e.kind != "page" || !strings.Contains(e.data, "connection refused") {
		t.Fatalf("the first event is %q: %.300s", e.kind, e.data)
	}
	changed := webService(time.Now())
	changed.Servers[1].State, changed.Servers[1].Cause = api.RealDisabled, "disabled by its administrator"
	f.set("/v1/services", admin.Services{Services: []api.ServiceView{changed}})
	for e = next(); e.kind == "same"; e = next() {
	}
	if e.kind != "page" || !strings.Contains(e.data, "disabled by its administrator") {
		t.Errorf("the event after the change is %q: %.300s", e.kind, e.data)
	}
}

// TestStreamResumes: a client that has the page already gets no page.
func TestStreamResumes(t *testing.T) {
	f := newFake(t, values(time.Now()))
	at := served(t, f, nil)
	next, _, end := listen(t, at.URL, "/services")
	first := next()
	end()
	next, _, _ = listen(t, at.URL, "/services", "Last-Event-ID", first.id)
	if e := next(); e.kind != "same" {
		t.Errorf("a client that has the page gets %q", e.kind)
	}
}

// TestStreamsAreLimited: the 33rd stream is refused, and a stream whose client has gone makes room.
func TestStreamsAreLimited(t *testing.T) {
	f := newFake(t, values(time.Now()))
	at := served(t, f, nil)
	var ends []func()
	for range 32 {
		next, answer, end := listen(t, at.URL, "/events")
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s", len(ends), answer.Status)
		}
		next()
		ends = append(ends, end)
	}
	if _, answer, _ := listen(t, at.URL, "/events"); answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("stream 33: %s", answer.Status)
	}
	ends[0]()
	for {
		if _, answer, _ := listen(t, at.URL, "/events"); answer.StatusCode == http.StatusOK {
			break
		}
	}
}

// TestNodesOfACluster: the page of the cluster says of every node what it holds and what its checks find, and why
// the rest is unknown.
func TestNodesOfACluster(t *testing.T) {
	all := values(time.Now())
	service := webService(time.Now())
	service.Servers[0].Nodes = []api.NodeFinding{{Node: "host2", State: api.RealDown}}
	service.Servers[1].Nodes = []api.NodeFinding{{Node: "host2", State: api.RealUp}}
	all["/v1/services"] = admin.Services{Services: []api.ServiceView{service}}
	all["/v1/cluster"] = api.ClusterStatus{Name: "default", Node: "host1", Nodes: []api.ClusterNodeStatus{
		{ID: "1", Name: "host1", Alive: true}, {ID: "2", Name: "host2", Alive: true}, {ID: "3", Name: "host3"}},
		Etcd: api.EtcdHealth{Connected: true}, Addresses: []api.ClusterAddress{{Holder: "host2",
			ClusterAddressSpec: api.ClusterAddressSpec{Address: netip.MustParsePrefix("192.0.2.10/24")}}}}
	all["/v1/cluster/bgp"] = admin.ClusterBGPSessions{}
	_, text := get(t, served(t, newFake(t, maps.Clone(all)), nil).URL+"/cluster")
	if !strings.Contains(text, "Unknown: the records have not been read yet.") { // of an older daemon
		t.Errorf("the page does not say that records are unknown:\n%s", text)
	}
	there := []netip.Addr{netip.MustParseAddr("10.0.9.2")}
	all["/v1/cluster/objects"] = admin.ClusterObjects{Objects: []api.ClusterObject{
		{Node: "host1", Kind: api.ClusterEndpoint, Name: "own-endpoint"},
		{Node: "host2", Kind: api.ClusterReal, Of: "web", Name: "web-9", Addresses: there, Port: 8080},
		{Node: "host2", Kind: api.ClusterSandbox, Name: "web-7", Down: "its check fails"},
		{Node: "host3", Kind: api.ClusterEndpoint, Of: "shop", Name: "web-8"}}}
	_, text = get(t, served(t, newFake(t, all), nil).URL+"/cluster")
	if strings.Contains(text, "own-endpoint") {
		t.Error("the page lists an endpoint of this node as one of another")
	}
	for _, want := range []string{"host2</th><td>192.0.2.10</td>", "1 up, 1 down",
		"unknown, because it has not reported any", "<td>web-9</td><td>10.0.9.2:8080</td>", "down: its check fails",
		"its node does not answer"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

// TestHalfOpenStream: a client that reads nothing is disconnected, and does not hold up others.
func TestHalfOpenStream(t *testing.T) {
	now := time.Now()
	f := newFake(t, many(3000, now))
	at := served(t, f, nil)
	silent, err := net.Dial("tcp", strings.TrimPrefix(at.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := io.WriteString(silent, "GET /stream?page=%2Fservices HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	next, _, _ := listen(t, at.URL, "/services")
	if e := next(); e.kind != "page" {
		t.Errorf("beside a client that reads nothing, the event is %q", e.kind)
	}
}

// TestCloseEndsStreams: the end of the dashboard does not wait for streams.
func TestCloseEndsStreams(t *testing.T) {
	f := newFake(t, values(time.Now()))
	d := dashboard.New(dashboard.Options{Daemon: admin.NewClient(f.socket), Log: slog.New(slog.DiscardHandler)})
	at := httptest.NewServer(d)
	next, answer, _ := listen(t, at.URL, "/events")
	next()
	d.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Errorf("the stream ends with: %v", err)
	}
	at.Close()
	if _, answer, _ := listen(t, served(t, f, nil).URL, "/events"); answer.StatusCode != http.StatusOK {
		t.Errorf("a stream of another dashboard: %s", answer.Status)
	}
}

// TestNothingIsReadWithoutViewers: the daemon is asked when a page is shown, and once for all viewers: each value at
// most once per second.
func TestNothingIsReadWithoutViewers(t *testing.T) {
	f := newFake(t, values(time.Now()))
	at := served(t, f, nil)
	if n := f.requests(); n != 0 {
		t.Errorf("before a page is shown, the daemon got %d requests", n)
	}
	began := time.Now()
	for range 10 {
		next, _, _ := listen(t, at.URL, "/services")
		next()
	}
	n, most := f.requests(), 1+int(time.Since(began)/time.Second)
	if n == 0 || n > 2*most { // for the services and for the counter of changes
		t.Errorf("ten viewers caused %d requests, want at most %d", n, 2*most)
	}
}

// TestFirstPageReadsWhatIsWrong: with thousands of real servers, attachments and routers, the first page asks the
// daemon only for those that need attention.
func TestFirstPageReadsWhatIsWrong(t *testing.T) {
	f := newFake(t, values(time.Now()))
	if _, got := get(t, served(t, f, nil).URL+"/"); !strings.Contains(got, "check failed 3 times") {
		t.Errorf("the page lacks the real server that is down: %.3000s", got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range []string{"/v1/services", "/v1/attachments", "/v1/stats", "/v1/gateway/api/rawdata"} {
		if f.asked[path] != 0 || f.asked[path+"?wrong"] == 0 {
			t.Errorf("%s: %v", path, f.asked)
		}
	}
}

// TestServicesReadsWhatItShows: with thousands of real servers, the page of services asks for the rows that it shows.
// For a filter, it asks for all.
func TestServicesReadsWhatItShows(t *testing.T) {
	f := newFake(t, values(time.Now()))
	at := served(t, f, nil).URL
	asked := func(path string) int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.asked[path]
	}
	if get(t, at+"/services"); asked("/v1/services") != 0 || asked("/v1/services?first=100") != 1 {
		t.Errorf("the page asks for %v", f.asked)
	}
	if get(t, at+"/services?q=down"); asked("/v1/services") != 1 {
		t.Errorf("with a filter, the page asks for %v", f.asked)
	}
}

// TestFalseTotals: the page of services says that it could not be read if the daemon counts other rows than it returns.
func TestFalseTotals(t *testing.T) {
	all := values(time.Now())
	for _, total := range []api.ServiceTotal{{}, {Services: 1, Reals: 1}, {Services: 500, Reals: 500},
		{Services: -1, Reals: -1}} {
		all["/v1/services"] = admin.Services{Services: []api.ServiceView{webService(time.Now())}, Total: &total}
		at := served(t, newFake(t, all), nil).URL
		if answer, page := get(t, at+"/services"); answer.StatusCode != http.StatusOK ||
			!strings.Contains(page, "Not everything could be read.") ||
			strings.Contains(page, "There is no virtual service") {
			t.Errorf("%+v: %s\n%s", total, answer.Status, page)
		}
	}
}

// TestFirstPageIsThatOfAll compares the rows of the page of services, which reads only these, with those of a page that
// reads all.
func TestFirstPageIsThatOfAll(t *testing.T) {
	now, random := time.Now(), rand.New(rand.NewPCG(1, 2))
	all := values(now)
	var services []api.ServiceView
	for i := range 300 {
		s := webService(now)
		s.Name, s.Servers = fmt.Sprint("web-", i), nil
		s.Status = []api.ServiceStatus{api.ServiceUp, api.ServiceUp, api.ServiceSorry, api.ServiceDown}[random.IntN(4)]
		for j := range random.IntN(4) {
			s.Servers = append(s.Servers, api.RealView{Address: netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8),
				byte(i)}), Port: 80, Since: now, State: []api.RealStatus{api.RealUp, api.RealUp, api.RealUp, api.RealUp,
				api.RealUp, api.RealUp, "", api.RealDraining, api.RealDown}[random.IntN(9)]})
		}
		services = append(services, s)
	}
	all["/v1/services"] = admin.Services{Services: services}
	at := served(t, newFake(t, all), nil).URL
	rows := func(query string) string {
		_, page := get(t, at+"/services"+query)
		parts := regexp.MustCompile(`<tr id="[^"]*"|<caption>[^<]*|Page \d+ of \d+`)
		return strings.Join(parts.FindAllString(page, -1), "\n")
	}
	first := rows("")
	if whole := rows("?page=1&s.page=1"); first != whole || strings.Count(first, "<tr id=") != 200 {
		t.Errorf("the page shows\n%s\nof\n%s", first, whole)
	}
}
