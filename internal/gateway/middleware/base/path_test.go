package base

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzStripPath checks that no path, however it is encoded, keeps a dot segment, and that
// the fields of the URL belong together.
func FuzzStripPath(f *testing.F) {
	for _, path := range []string{"/api/x", "/api../x", "/api%2e%2e/x", "/api/%2e%2e%2fx", "/api%2F..%2Fx", "/%61pi",
		"/api//x", "/api%", "/api%2", "/api/%00", "/api?x", "/api%3Fx#y", "/apı", "/api\\..\\x"} {
		f.Add(path, "/api")
		f.Add(path, "/a")
	}
	f.Fuzz(func(t *testing.T, target, prefix string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || prefix == "" || !strings.HasPrefix(u.Path, prefix) {
			return
		}
		r := &http.Request{Method: "GET", URL: u, RequestURI: target, Header: http.Header{}}
		if !StripPath(r, prefix, false) {
			return
		}
		// A rest that begins with an encoded slash gets another one.
		if rest := u.Path[len(prefix):]; r.URL.Path != rest && r.URL.Path != "/"+rest {
			t.Errorf("the path is %q, want %q", r.URL.Path, rest)
		}
		again, err := url.ParseRequestURI(r.RequestURI)
		if err != nil || !strings.HasPrefix(r.RequestURI, "//") && again.Path != r.URL.Path {
			t.Errorf("the request target %q means %v, %v, want %q", r.RequestURI, again, err, r.URL.Path)
		}
		if HasDotSegment(r.URL.Path) {
			t.Errorf("the path %q has a dot segment", r.URL.Path)
		}
	})
}
