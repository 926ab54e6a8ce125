package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestTargetsAtEntryPoints checks what servers get of paths and queries, over HTTP/1.1 and HTTP/2.
func TestTargetsAtEntryPoints(t *testing.T) {
	both := new(http.Protocols)
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.RequestURI) // the client may be gone
	}))
	s.Config.Protocols = both
	s.Start()
	t.Cleanup(s.Close)
	for _, c := range []struct {
		name string
		at   model.EntryPoint
		want string
	}{
		{"by default", model.EntryPoint{}, "/c/a?x=1;y=2"},
		{"semicolons", model.EntryPoint{EncodeQuerySemicolons: true}, "/c/a?x=1%3By=2"},
		{"sanitized", model.EntryPoint{SanitizePath: new(true)}, "/c/a?x=1;y=2"},
		{"not sanitized", model.EntryPoint{SanitizePath: new(false)}, "/b/../c//a?x=1;y=2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.at.Name, c.at.Address = "web", "127.0.0.1:0"
			w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{c.at}})
			w.apply(map[string]*model.Router{"one@file": {Rule: "Host(`one.test`)", Service: "one@file"},
				"two@file": {Rule: "Host(`two.test`)", Service: "two@file"}},
				map[string]*model.Service{"one@file": serviceOf(s.URL),
					"two@file": serviceOf(strings.Replace(s.URL, "http:", "h2c:", 1))})
			for _, host := range []string{"one.test", "two.test"} {
				if _, got := w.get("http://" + host + "/b/../c//%61?x=1;y=2"); got != c.want {
					t.Errorf("%s got %q, want %q", host, got, c.want)
				}
			}
		})
	}
}

// TestForwardedHeadersAtEntryPoints checks that a router sees a header that the client may name in Connection, that
// the server does not, and that X-Forwarded-For stays as a trusted proxy has sent it.
func TestForwardedHeadersAtEntryPoints(t *testing.T) {
	at := model.EntryPoint{Name: "web", Address: "127.0.0.1:0", Insecure: true, ConnectionHeaders: []string{"x-seen"},
		NotAppendXForwardedFor: true}
	w := newWorld(t, model.Static{EntryPoints: []model.EntryPoint{at}})
	w.apply(map[string]*model.Router{"r@file": {Rule: "Header(`X-Seen`, `1`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": server(t, func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, strings.Join(r.Header["X-Forwarded-For"], "|")+" "+r.Header.Get("X-Seen")+
				r.Header.Get("X-Hidden")) // the client may be gone
		})})
	for sent, want := range map[string]string{"": " ", "192.0.2.9": "192.0.2.9 "} {
		headers := []string{"Connection", "X-Seen, X-Hidden", "X-Seen", "1", "X-Hidden", "1"}
		if sent != "" {
			headers = append(headers, "X-Forwarded-For", sent)
		}
		if status, got := w.get("http://a.test/", headers...); status != http.StatusOK || got != want {
			t.Errorf("X-Forwarded-For %q: %d %q, want %q", sent, status, got, want)
		}
	}
	other := newWorld(t, model.Static{})
	other.apply(map[string]*model.Router{"r@file": {Rule: "Header(`X-Seen`, `1`)", Service: "s@file"}},
		map[string]*model.Service{"s@file": server(t, named("seen"))})
	if status, _ := other.get("http://a.test/", "Connection", "X-Seen", "X-Seen", "1"); status != http.StatusNotFound {
		t.Errorf("without the setting, a header that Connection names is seen: %d", status)
	}
}
