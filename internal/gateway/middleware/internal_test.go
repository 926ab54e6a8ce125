package middleware

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestVerdictsAreCached counts how often passwords are hashed.
func TestVerdictsAreCached(t *testing.T) {
	hashed := 0
	joe := &account{check: func(password string) bool { hashed++; return password == "right" }}
	a := &basicAuth{accounts: map[string]*account{"joe": joe}, unknown: joe}
	for i, step := range []struct {
		user, password string
		want           bool
		hashed         int
	}{
		{"joe", "right", true, 1}, {"joe", "right", true, 1}, {"joe", "wrong", false, 2}, {"joe", "wrong", false, 3},
		{"joe", "right", true, 3}, {"eve", "right", false, 4}, {"eve", "right", false, 5}, {"joe", "right", true, 5},
	} {
		if got := a.authenticate(t.Context(), step.user, step.password); got != step.want || hashed != step.hashed {
			t.Errorf("step %d: %v after %d hashes, want %v after %d", i, got, hashed, step.want, step.hashed)
		}
	}
}

// TestRateLimitMemory takes tokens for more sources than fit: full buckets are removed
// first, then others.
func TestRateLimitMemory(t *testing.T) {
	l := &rateLimit{interval: time.Second, burst: time.Second, full: map[uint64]time.Duration{}}
	for source := range uint64(maxSources) {
		l.take(source, 0)
	}
	for source := range uint64(10) {
		l.take(maxSources+source, time.Second/2)
	}
	if got := len(l.full); got != maxSources {
		t.Errorf("%d buckets, want %d", got, maxSources)
	}
	l.take(2*maxSources, 2*time.Second)
	if got := len(l.full); got != 1 {
		t.Errorf("%d buckets after all are full, want 1", got)
	}
}

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
		if !stripPath(r, prefix, false) {
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
		if hasDotSegment(r.URL.Path) {
			t.Errorf("the path %q has a dot segment", r.URL.Path)
		}
	})
}

// FuzzDigestParameters checks that no header makes the parser fail.
func FuzzDigestParameters(f *testing.F) {
	for _, header := range []string{`Digest a="b", c=d`, `Digest a="\`, `Digest =`, `Digest a`, `Digest ,,,a=,"=`} {
		f.Add(header)
	}
	f.Fuzz(func(_ *testing.T, header string) { digestParameters(header) })
}

// TestHeadWriterFinish checks that a handler that has written its head is not called
// again.
func TestHeadWriterFinish(t *testing.T) {
	calls := 0
	w := &headWriter{ResponseWriter: httptest.NewRecorder(), before: func(int) { calls++ }}
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(http.StatusNotFound)
	w.Flush()
	w.finish()
	if calls != 1 {
		t.Errorf("the function was called %d times", calls)
	}
}
