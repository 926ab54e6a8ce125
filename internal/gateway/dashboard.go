package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"fairlead/internal/gateway/explain"
	"fairlead/internal/gateway/metric"
	"fairlead/internal/gateway/view"
)

// Dashboard are pages about a gateway, which package dashboard makes.
type Dashboard interface {
	http.Handler
	// Close ends the responses that last as long as their clients want. It can be called more than once.
	Close()
}

// Shown is what a dashboard shows.
type Shown struct {
	// Base is the prefix of the paths of all pages.
	Base string
	// Read reads a path of the API, as a client of it would.
	Read func(ctx context.Context, path string, into any) error
	// Totals returns the counters of the requests.
	Totals func() metric.Totals
}

// pathDashboard is where the pages are, as in Traefik.
const pathDashboard = "/dashboard"

// console answers requests to api@internal and to dashboard@internal.
type console struct {
	// api answers the paths of the API. dashboard is nil if there is none.
	api       http.Handler
	dashboard Dashboard
	objects   func() view.RawData
}

// newConsole returns the read-only API, whose paths and keys are Traefik's.
func newConsole(static view.Static, objects func() view.RawData, source func() explain.Source) *console {
	mux := http.NewServeMux()
	view.Add(mux, static, objects)
	mux.Handle("GET /api/explain", explain.Handler(source))
	return &console{api: mux, objects: objects}
}

// close ends the responses of the dashboard that have no end of their own.
func (c *console) close() {
	if c.dashboard != nil {
		c.dashboard.Close()
	}
}

// serveAPI answers requests to api@internal: the API, and the pages if there are any.
func (c *console) serveAPI(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case c.dashboard == nil:
		c.api.ServeHTTP(w, r)
	case path == "/" || path == pathDashboard:
		http.Redirect(w, r, pathDashboard+"/", http.StatusFound)
	case strings.HasPrefix(path, pathDashboard+"/"):
		c.dashboard.ServeHTTP(w, r)
	default:
		c.api.ServeHTTP(w, r)
	}
}

// serveDashboard answers requests to dashboard@internal. As in Traefik, the middleware stripPrefix, which sets the
// header X-Forwarded-Prefix, may have removed the prefix of the pages.
func (c *console) serveDashboard(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	whole := path == pathDashboard || path == "/" && r.Header.Get("X-Forwarded-Prefix") == ""
	if c.dashboard == nil || whole || strings.HasPrefix(path, pathDashboard+"/") || strings.HasPrefix(path, "/api/") {
		c.serveAPI(w, r)
		return
	}
	prefixed := r.Clone(r.Context())
	prefixed.URL.Path, prefixed.URL.RawPath = pathDashboard+"/"+strings.TrimPrefix(path, "/"), ""
	c.dashboard.ServeHTTP(w, prefixed)
}

// read answers a path of the API. Objects are not encoded: with thousands of routers, that takes longer than to show
// them.
func (c *console) read(ctx context.Context, path string, into any) error {
	u, err := url.Parse(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if raw, ok := into.(*view.RawData); ok && u.Path == "/api/rawdata" {
		*raw = c.objects()
		return nil
	}
	w := &answered{header: http.Header{}}
	c.api.ServeHTTP(w, (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).WithContext(ctx))
	if w.status >= http.StatusBadRequest {
		return fmt.Errorf("read %s: %s", path, strings.TrimSpace(w.body.String()))
	}
	return json.Unmarshal([]byte(w.body.String()), into)
}

// answered is a response in memory.
type answered struct {
	header http.Header
	status int
	body   strings.Builder
}

func (a *answered) Header() http.Header         { return a.header }
func (a *answered) WriteHeader(status int)      { a.status = status }
func (a *answered) Write(b []byte) (int, error) { return a.body.Write(b) }
