package provider

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead/internal/model/gateway"
)

// filter answers like a proxy of an engine that lets only some requests through.
type filter struct {
	to      http.Handler
	allowed []*regexp.Regexp

	mu sync.Mutex
	// used are those of allowed that requests needed.
	used map[*regexp.Regexp]bool
}

// newFilter returns a filter with the requests that the guide names for a provider.
func newFilter(t *testing.T, provider string, to http.Handler) *filter {
	t.Helper()
	guide, err := os.ReadFile("../../../../docs/guide/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ` + provider + ` \| (.*) \|$`).FindSubmatch(guide)
	if row == nil {
		t.Fatalf("the guide has no requests of the provider %s", provider)
	}
	f := &filter{to: to, used: map[*regexp.Regexp]bool{}}
	for _, request := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(string(row[1]), -1) {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(request[1]), "ID", "[^/]+")
		f.allowed = append(f.allowed, regexp.MustCompile("^"+pattern+"$"))
	}
	return f
}

func (f *filter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i := slices.IndexFunc(f.allowed, func(a *regexp.Regexp) bool { return a.MatchString(r.Method + " " + r.URL.Path) })
	if i < 0 {
		http.Error(w, "forbidden", http.StatusForbidden)
		return
	}
	f.mu.Lock()
	f.used[f.allowed[i]] = true
	f.mu.Unlock()
	f.to.ServeHTTP(w, r)
}

// wantAllUsed checks that the guide names no request that the provider does not need.
func (f *filter) wantAllUsed(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.allowed {
		if !f.used[a] {
			t.Errorf("the guide names a request that the provider does not send: %s", a)
		}
	}
}

// TestFilteredEngine follows containers via a proxy that allows what the guide says.
func TestFilteredEngine(t *testing.T) {
	engine := newFakeEngine()
	engine.set("one", "10.0.0.1", "", "")
	f := newFilter(t, "Docker", engine)
	want := follow(t, newProvider(t, gateway.Docker{Endpoint: serve(t, f)}))
	want("at the start", "http://10.0.0.1:80")
	engine.event("kill", "one", "15")
	want("at its stop signal", "")
	f.wantAllUsed(t)
}

// TestFilteredSwarm follows the tasks of a swarm via a proxy that allows what the guide says.
func TestFilteredSwarm(t *testing.T) {
	engine := &fakeSwarm{events: make(chan string)}
	engine.set(taskOf("1", "host", "", "running", "running"))
	f := newFilter(t, "Swarm", engine)
	s := newSwarmProvider(t, serve(t, f))
	s.self = self{ids: []string{"cgateway"}}
	follow(t, s)("at the start", "http://192.0.2.2:80")
	f.wantAllUsed(t)
}
