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
	// prefix is what all paths that clients ask for begin with.
	prefix string
	// api answers the paths of the API without the prefix, and prefixed those with it.
	api, prefixed http.Handler
	// dashboard is nil if there is none.
	dashboard Dashboard
	objects   func() view.RawData
}

// newConsole returns the read-only API, whose paths and keys are Traefik's.
func newConsole(static view.Static, objects func() view.RawData, source func() explain.Source) *console {
	mux := http.NewServeMux()
	view.Add(mux, static, objects)
	mux.Handle("GET /api/explain", explain.Handler(source))
	c := &console{prefix: static.API.Prefix(), api: mux, prefixed: mux, objects: objects}
	if c.prefix != "" {
		below := http.NewServeMux()
		below.Handle(c.prefix+"/", http.StripPrefix(c.prefix, mux))
		c.prefixed = below
	}
	return c
}

// close ends the responses of the dashboard that have no end of their own.
func (c *console) close() {
	if c.dashboard != nil {
		c.dashboard.Close()
	}
}

// serveAPI answers requests to api@internal: the API, and the pages if there are any.
func (c *console) serveAPI(w http.ResponseWriter, r *http.Request) {
	path, below := strings.CutPrefix(r.URL.Path, c.prefix)
	switch {
	case c.dashboard == nil || !below:
		c.prefixed.ServeHTTP(w, r)
	case path == "" || path == "/" || path == pathDashboard:
		http.Redirect(w, r, c.prefix+pathDashboard+"/", http.StatusFound)
	case strings.HasPrefix(path, pathDashboard+"/"):
		c.dashboard.ServeHTTP(w, r)
	default:
		c.prefixed.ServeHTTP(w, r)
	}
}

// serveDashboard answers requests to dashboard@internal. As in Traefik, the middleware stripPrefix, which sets the
// header X-Forwarded-Prefix, may have removed the prefix of the pages.
func (c *console) serveDashboard(w http.ResponseWriter, r *http.Request) {
	path, below := strings.CutPrefix(r.URL.Path, c.prefix)
	whole := path == pathDashboard || strings.HasPrefix(path, pathDashboard+"/") || strings.HasPrefix(path, "/api/")
	stripped := r.Header.Get("X-Forwarded-Prefix") != "" // without a base path, others may have removed the prefix
	if c.dashboard == nil || below && whole || !stripped && (c.prefix != "" || path == "/") {
		c.serveAPI(w, r)
		return
	}
	restored := r.Clone(r.Context())
	restored.URL.Path = c.prefix + pathDashboard + "/" + strings.TrimPrefix(r.URL.Path, "/")
	restored.URL.RawPath = ""
	c.dashboard.ServeHTTP(w, restored)
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
