package dashboard_test

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/ports"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/view"
	"fairlead/internal/kernel/counter"
	"fairlead/internal/model"

	"golang.org/x/net/html"
)

// guide is the page with the ten questions of an operator, and the clicks that answer them.
const guide = "../../docs/guide/dashboard.md"

// question is a row of the guide's table: `| question | clicks | the answer is in |`.
type question struct{ text, clicks string }

var tableRow = regexp.MustCompile(`(?m)^\| \d+ \| ([^|]+) \| ([^|]+) \|`)

// questions returns the rows of the guide.
func questions(t *testing.T) (all []question) {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range tableRow.FindAllStringSubmatch(string(text), -1) {
		all = append(all, question{strings.TrimSpace(m[1]), strings.TrimSpace(m[2])})
	}
	return all
}

// answers are what the page at the end of the clicks must say, by question.
var answers = map[string][]string{
	"Is anything wrong, and since when?": {"real server 10.0.0.3:8080 of web", "for 3m"},
	"Why is this server out?": {"down",
		"check failed 3 times: connection refused", "3m"},
	"Who owns port 8080?":                                               {"8080/tcp", "nginx (7)", "shop", "LAN"},
	"Since when is a server slow to answer its check?":                  {"Took", "1.5ms", "2m"},
	"Which router takes this URL?":                                      {"shop@file", "Host(`shop.example.org`)"},
	"When does this certificate end?":                                   {"shop.example.org", "ends in 10d"},
	"Which node holds this virtual address, and how long is its lease?": {"192.0.2.10/24", "host2", "2.5s"},
	"What happened to this service?":                                    {"down", "service web real 10.0.0.3:8080"},
	"What drops the packets of this flow?":                              {"dropped", "tcp dport 8080 drop"},
	"Is the conntrack table nearly full?":                               {"conntrack", "900 of 1000 (90%)"},
}

// site is a host on which the ten questions have answers.
func site(t *testing.T) (*fake, *room) {
	t.Helper()
	now := time.Now()
	all := values(now)
	all["/v1/stats"] = api.Stats{Conntrack: &counter.Fill{Entries: 900, Max: 1000}}
	all["/v1/gateway/api/rawdata"] = view.RawData{
		Routers: map[string]view.Router{"shop@file": {Info: view.Info{Name: "shop@file", Status: "enabled"},
			Rule: "Host(`shop.example.org`)", Service: "shop", EntryPoints: []string{"web"}}},
		Certificates: []shown.Certificate{{Names: []string{"shop.example.org"}, Issuer: "CN=Test",
			NotAfter: now.Add(10*24*time.Hour + time.Hour)}}}
	all["/v1/gateway/api/explain"] = shown.Answer{EntryPoint: "web", Router: "shop@file",
		Rule: "Host(`shop.example.org`)", Service: "shop"}
	all["/v1/cluster"] = api.ClusterStatus{Name: "default", Node: "host1", Nodes: []api.ClusterNodeStatus{
		{ID: "1", Name: "host1", Alive: true, Since: now}, {ID: "2", Name: "host2", Alive: true, Since: now}},
		Etcd: api.EtcdHealth{Connected: true},
		Addresses: []api.ClusterAddress{{ClusterAddressSpec: api.ClusterAddressSpec{
			Address: netip.MustParsePrefix("192.0.2.10/24"), Hold: 3 * time.Second}, Holder: "host2", Since: now,
			Lease: 2500 * time.Millisecond}}}
	all["/v1/cluster/bgp"] = admin.ClusterBGPSessions{}
	r := &room{}
	r.host.Ports = []ports.Port{aPort()}
	r.explanation = flow.Explanation{Flow: "192.0.2.7 -> :8080", Proto: model.TCP,
		Source: netip.MustParseAddr("192.0.2.7"), Destination: netip.MustParseAddrPort("192.0.2.1:8080"),
		Outcome: flow.Dropped, Verdict: "the firewall drops it", Hops: []flow.Hop{
			{Number: 1, Kind: flow.Begin, Where: "host", Link: "eth0", What: "arrives"},
			{Number: 2, Kind: flow.Filter, Where: "host", What: "dropped",
				By: "inet filter input: tcp dport 8080 drop"}}}
	return newFake(t, all), r
}

// step is a click or an input: `Services`, `type 8080`.
var step = regexp.MustCompile("`([^`]+)`")

// TestTenQuestions: after the clicks of the guide, which begin at the first page, a page has the answer, without a
// script. A click follows a link by its text; words after a field's name are typed into the field, and its form is
// sent.
func TestTenQuestions(t *testing.T) {
	all := questions(t)
	if len(all) != 10 {
		t.Fatalf("the guide has %d questions", len(all))
	}
	f, r := site(t)
	at := served(t, f, func(o *dashboard.Options) { o.Host = r })
	for _, q := range all {
		b := &browser{t: t, at: at.URL, url: "/"}
		b.load()
		for _, m := range step.FindAllStringSubmatch(q.clicks, -1) {
			b.act(m[1])
		}
		want, ok := answers[q.text]
		if !ok {
			t.Errorf("the test knows no answer of %q", q.text)
		}
		text := strings.Join(strings.Fields(htmlText(t, b.body)), " ")
		for _, fact := range want {
			if !strings.Contains(text, fact) {
				t.Errorf("%s: %s has no %q:\n%.1500s", q.text, b.url, fact, text)
			}
		}
	}
}

// browser follows links and sends forms, without a script.
type browser struct {
	t             *testing.T
	at, url, body string
}

func (b *browser) load() {
	b.t.Helper()
	answer, text := get(b.t, b.at+b.url)
	if answer.StatusCode != 200 {
		b.t.Fatalf("%s: %s", b.url, answer.Status)
	}
	b.body = text
}

// act follows the link with the text, or fills in a field: NAME=VALUE, or several with & between them.
func (b *browser) act(what string) {
	b.t.Helper()
	doc, err := html.Parse(strings.NewReader(b.body))
	if err != nil {
		b.t.Fatal(err)
	}
	if strings.Contains(what, "=") {
		b.send(doc, what)
		return
	}
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && n.Data == "a" && n.FirstChild != nil && n.FirstChild.Data == what {
			b.url = attribute(n, "href")
			b.load()
			return
		}
	}
	b.t.Fatalf("%s has no link %q", b.url, what)
}

// send sends the form that has all fields.
func (b *browser) send(doc *html.Node, fields string) {
	b.t.Helper()
	var names, pairs []string
	for _, one := range strings.Split(fields, "&") {
		name, value, _ := strings.Cut(one, "=")
		names = append(names, name)
		pairs = append(pairs, name+"="+escaped(value))
	}
	for n := range doc.Descendants() {
		if n.Data != "form" {
			continue
		}
		var has []string
		for in := range n.Descendants() {
			if in.Data == "input" {
				has = append(has, attribute(in, "name"))
			}
		}
		if !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(has, name) }) {
			b.url = attribute(n, "action") + "?" + strings.Join(pairs, "&")
			b.load()
			return
		}
	}
	b.t.Fatalf("%s has no form with %q", b.url, names)
}

func escaped(s string) string {
	return strings.NewReplacer("%", "%25", " ", "%20", "&", "%26", "+", "%2B", "#", "%23").Replace(s)
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// TestActions: without the flag the page shows the command and refuses the request. With it, only a form of this
// process acts, and the log says who has acted.
func TestActions(t *testing.T) {
	f := newFake(t, values(time.Now()))
	f.set("/v1/services/real", api.Result{Changed: true})
	plain := served(t, f, nil)
	_, text := get(t, plain.URL+"/service?name=web")
	if strings.Contains(text, "<button aria-label=\"Drain") ||
		!strings.Contains(text, "fairlead service drain web 10.0.0.2:8080") {
		t.Error("without the flag, the page has buttons, or lacks the command")
	}
	if got := post(t, plain.URL+"/act", "do=drain&service=web&real=10.0.0.2:8080"); got != 403 {
		t.Errorf("an action without the flag: %d", got)
	}
	logged := filepath.Join(t.TempDir(), "log")
	acting := served(t, f, func(o *dashboard.Options) { o.Actions, o.Log = true, logTo(t, logged) })
	answer, text := get(t, acting.URL+"/services")
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(text)
	if token == nil {
		t.Fatal("the page has no form")
	}
	form := "do=drain&service=web&real=10.0.0.2:8080&token="
	for _, c := range []struct {
		body    string
		headers []string
		want    int
	}{
		{form, nil, 403}, {form + "guess", nil, 403},
		{form + token[1], []string{"Origin", "http://evil.example"}, 403},
		{form + token[1], []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{form + token[1], []string{"Sec-Fetch-Site", "same-origin", "Origin", formOrigin(answer, text)}, 303},
	} {
		if got := post(t, acting.URL+"/act", c.body, c.headers...); got != c.want {
			t.Errorf("%.60s %q: %d, want %d", c.body, c.headers, got, c.want)
		}
	}
	var request api.RealRequest
	if len(f.posted) != 1 ||
		json.Unmarshal([]byte(strings.TrimPrefix(f.posted[0], "/v1/services/real ")), &request) != nil ||
		request != (api.RealRequest{Service: "web", Real: "10.0.0.2:8080", Do: api.DrainReal}) {
		t.Errorf("the daemon got %q", f.posted)
	}
	said, err := os.ReadFile(logged)
	if err != nil || !strings.Contains(string(said), "drain 10.0.0.2:8080 of service web") ||
		!strings.Contains(string(said), "by=127.0.0.1:") {
		t.Errorf("the log has %q, %v", said, err)
	}
}

// formOrigin returns the header Origin that a browser sends with a form of a page: null under the referrer policy
// no-referrer.
func formOrigin(answer *http.Response, page string) string {
	policy := answer.Header.Get("Referrer-Policy")
	if of := regexp.MustCompile(`<meta name="referrer" content="([^"]+)"`).FindStringSubmatch(page); of != nil {
		policy = of[1]
	}
	if policy == "no-referrer" {
		return "null"
	}
	return "http://" + answer.Request.URL.Host
}

// TestBase: behind a path prefix, every link, form and asset has the prefix, and is one of a page.
func TestBase(t *testing.T) {
	f, r := site(t)
	at := served(t, f, func(o *dashboard.Options) { o.Host, o.Base = r, "/some/base" })
	if answer, _ := get(t, at.URL+"/some/base"); answer.Header.Get("Location") != "/some/base/" {
		t.Errorf("the base redirects to %q", answer.Header.Get("Location"))
	}
	for _, path := range pages {
		_, text := get(t, at.URL+"/some/base"+path)
		doc, err := html.Parse(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		links := 0
		for n := range doc.Descendants() {
			for _, key := range []string{"href", "src", "action"} {
				to := attribute(n, key)
				if to == "" || to[0] == '#' {
					continue
				}
				links++
				if answer, _ := get(t, at.URL+to); !strings.HasPrefix(to, "/some/base/") || answer.StatusCode != 200 {
					t.Errorf("%s: <%s %s=%q>: %s", path, n.Data, key, to, answer.Status)
				}
			}
		}
		if links < 10 {
			t.Errorf("%s has only %d links", path, links)
		}
	}
	if answer, _ := get(t, at.URL+"/services"); answer.StatusCode != 404 {
		t.Errorf("a page without the base: %s", answer.Status)
	}
}

// TestExplanationsAreLimited: two flows are explained at the same time, and a third request is asked to try again.
func TestExplanationsAreLimited(t *testing.T) {
	f, r := site(t)
	r.entered, r.leave = make(chan struct{}), make(chan struct{})
	at := served(t, f, func(o *dashboard.Options) { o.Host = r })
	const question = "/explain?from=192.0.2.7&to=:8080"
	done := make(chan string, 2)
	for range 2 {
		go func() { _, text := get(t, at.URL+question); done <- text }()
		<-r.entered
	}
	if _, text := get(t, at.URL+question); !strings.Contains(text, "other explanations run: try again in a moment") {
		t.Errorf("the third explanation: %.600s", text)
	}
	close(r.leave)
	for range 2 {
		if text := <-done; !strings.Contains(text, "tcp dport 8080 drop") {
			t.Errorf("an explanation: %.600s", text)
		}
	}
}
