// Package dashboard serves the pages of the dashboard: HTML that is complete without a script, and one stream per tab
// that keeps a page up to date. It reads the daemon's API as a command does, and only while someone looks. Package
// access decides who may look.
//
// A stream sends the new HTML of its page at most once per second, and only if it differs. Viewers of the same page
// share its rendering, as all viewers share the readings of package source.
package dashboard

import (
	"compress/gzip"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strings"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard/asset"
	"fairlead/internal/frontend/dashboard/page"
	"fairlead/internal/frontend/dashboard/source"
)

// Options say what a dashboard shows.
type Options struct {
	// Base is the path prefix of all links: "" or, for example, "/dashboard". Requests have it, too.
	Base string
	// Daemon is nil without a daemon: pages about it are not listed then.
	Daemon *admin.Client
	// Gateway reads a path of the API of the gateway, such as /api/rawdata. If it is nil, Daemon is asked for its
	// gateway.
	Gateway func(ctx context.Context, path string, into any) error
	// Host examines this host; if it is nil, pages about it are not listed.
	Host page.Host
	// Charts returns the charts of a page; it can be nil.
	Charts page.Charts
	// Actions adds buttons that drain and enable real servers and move addresses.
	Actions bool
	// Who returns who makes a request, for the log of actions. If it is nil, the remote address is logged.
	Who func(*http.Request) string
	// Name is that of this host; empty means what the kernel says.
	Name    string
	Version string
	Log     *slog.Logger
}

// Dashboard is the handler of all pages.
type Dashboard struct {
	opt     Options
	site    *page.Site
	handler http.Handler
	streams streams
}

// maxExplains limits the explanations that run at the same time.
const maxExplains = 2

// New returns the handler. It does not check who asks: package access does.
func New(o Options) *Dashboard {
	if o.Gateway == nil && o.Daemon != nil {
		o.Gateway = o.Daemon.Gateway
	}
	if o.Name == "" {
		o.Name, _ = os.Hostname() // without a name, the title has none
	}
	if o.Who == nil {
		o.Who = func(r *http.Request) string { return r.RemoteAddr }
	}
	d := &Dashboard{opt: o, site: &page.Site{Base: o.Base, Name: o.Name, Version: o.Version, Actions: o.Actions,
		Sources: source.Of(o.Daemon, o.Gateway, o.Host), Gateway: o.Gateway, Host: o.Host, Charts: o.Charts,
		Explains: make(chan struct{}, maxExplains), Token: rand.Text()}}
	d.streams.init()
	mux := http.NewServeMux()
	mux.Handle("GET "+o.Base+"/asset/{name}", asset.Load())
	mux.HandleFunc("GET "+o.Base+"/stream", d.stream)
	mux.HandleFunc("POST "+o.Base+"/act", d.act)
	mux.HandleFunc("GET "+o.Base+"/", d.page)
	if o.Base != "" {
		mux.Handle("GET "+o.Base, http.RedirectHandler(o.Base+"/", http.StatusMovedPermanently))
	}
	d.handler = guarded(mux)
	return d
}

// ServeHTTP implements http.Handler. It logs a panic.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			d.opt.Log.Error("show the dashboard: it failed by a mistake", "panic", v, "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler)
		}
	}()
	d.handler.ServeHTTP(w, r)
}

// Close ends all streams. New ones are refused.
func (d *Dashboard) Close() { d.streams.end() }

// partHeader asks for the content of a page only, and etagHeader identifies it.
const (
	partHeader = "Fairlead-Part"
	etagHeader = "Fairlead-Etag"
)

// page shows a page.
func (d *Dashboard) page(w http.ResponseWriter, r *http.Request) {
	p, ok := d.site.Find(d.below(r.URL.Path))
	if !ok {
		http.Error(w, "There is no such page: begin at "+d.opt.Base+"/", http.StatusNotFound)
		return
	}
	rendered, err := d.site.Render(r.Context(), p, r.URL.Query())
	if err != nil {
		d.failed(w, err)
		return
	}
	body := []byte(rendered.Main)
	if r.Header.Get(partHeader) == "" {
		if body, err = d.site.Whole(p, rendered); err != nil {
			d.failed(w, err)
			return
		}
	}
	h := w.Header()
	h.Set(etagHeader, rendered.Etag)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding, "+partHeader)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = asset.Compressed(body, gzip.BestSpeed)
	}
	_, _ = w.Write(body) // the client may be gone
}

// below returns a path without the base.
func (d *Dashboard) below(path string) string { return strings.TrimPrefix(path, d.opt.Base) }

// failed answers a request that a page could not be written for.
func (d *Dashboard) failed(w http.ResponseWriter, err error) {
	d.opt.Log.Error("show the dashboard", "error", err)
	http.Error(w, "The page could not be written: see the log.", http.StatusInternalServerError)
}

// parsed returns the page and the query of a path with query below the base.
func (d *Dashboard) parsed(text string) (page.Page, url.Values, bool) {
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" {
		return page.Page{}, nil, false
	}
	p, ok := d.site.Find(u.Path)
	return p, u.Query(), ok
}
