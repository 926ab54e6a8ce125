package differential_test

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"fairlead/test/place"
)

// caseHeader names the request of a batch, so that a server's records can be assigned to it.
const caseHeader = "X-Case"

// wantHeader has the answer that a server shall give, as a query: status, type, size, and h for
// headers as NAME:VALUE.
const wantHeader = "X-Want"

// received is a request as a server got it.
type received struct {
	// At is the name of the server.
	At                   string
	Method, Target, Host string
	Header               map[string][]string
	Body                 string
}

// recorder is what the servers of one world have received, by the request's name.
type recorder struct {
	mu   sync.Mutex
	seen map[string][]received
}

func (r *recorder) add(name string, is received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[name] = append(r.seen[name], is)
}

// of returns what the servers received for a request, in the order of their names.
func (r *recorder) of(name string) []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(r.seen[name]), func(a, b received) int {
		return strings.Compare(a.At, b.At)
	})
}

// serve starts a server that records requests and answers as they want.
func (r *recorder) serve(t testing.TB, in place.Place, name, address string, secure bool) {
	t.Helper()
	l, err := place.Listen(in, address)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body) // what is missing is seen
		header := maps.Clone(q.Header)
		if own, err := os.Hostname(); err == nil && header.Get("X-Forwarded-Server") == own {
			header["X-Forwarded-Server"] = []string{"this host"}
		}
		r.add(q.Header.Get(caseHeader), received{name, q.Method, q.RequestURI, q.Host, header, string(body)})
		answer(w, q, name)
	}))
	closeListener(s, l)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.CloseClientConnections)
}

// closeListener replaces the server's listener.
func closeListener(s *httptest.Server, by net.Listener) {
	s.Listener.Close()
	s.Listener = by
}

// answer writes the answer that the request wants.
func answer(w http.ResponseWriter, r *http.Request, name string) {
	if path, ok := strings.CutPrefix(name, "auth"); ok || strings.HasPrefix(r.URL.Path, "/auth") {
		authorize(w, r, path)
		return
	}
	want, _ := url.ParseQuery(r.Header.Get(wantHeader)) // a faulty one wants nothing
	for _, h := range want["h"] {
		key, value, _ := strings.Cut(h, ":")
		w.Header().Add(key, value)
	}
	w.Header().Set("Content-Type", "text/plain")
	if kind := want.Get("type"); kind != "" {
		w.Header().Set("Content-Type", kind)
	}
	body := "answer of a server"
	if size, err := strconv.Atoi(want.Get("size")); err == nil {
		body = strings.Repeat("0123456789", size/10)
	}
	status := http.StatusOK
	if n, err := strconv.Atoi(want.Get("status")); err == nil {
		status = n
	}
	if status == http.StatusNoContent || status == http.StatusNotModified {
		body = ""
	} else {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the client may be gone
}

// authorize answers as the server of forwardAuth.
func authorize(w http.ResponseWriter, r *http.Request, _ string) {
	w.Header().Set("X-User", "joe")
	w.Header().Set("X-Team-A", "red")
	w.Header().Add("Set-Cookie", "auth=1; Path=/")
	switch r.URL.Path {
	case "/auth/deny":
		w.Header().Set("Www-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "please log in")
	case "/auth/login":
		w.Header().Set("Location", "/login?from=here")
		w.WriteHeader(http.StatusFound)
	}
}
