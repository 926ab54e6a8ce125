package entries

import (
	"net/http"

	"fairlead/internal/gateway/forwarded"
	"fairlead/internal/gateway/middleware/rewrite"
	"fairlead/internal/gateway/observe"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/target"
	"fairlead/internal/model/gateway"
)

// Handler is the handler of one entry point.
type Handler struct {
	current    *snapshot.Current
	name       string
	observed   *observe.Entry
	targets    target.Cleaner
	forwarding forwarded.Headers
	// denied, if not nil, refuses paths with some encoded characters.
	denied func(path string) bool
}

// Handler returns the handler of an entry point. Its errors name a trusted proxy that is not an address or prefix.
func (p *Points) Handler(value gateway.EntryPoint) (*Handler, error) {
	f, err := forwarded.New(forwarded.Settings{Trusted: value.TrustedProxies, Insecure: value.Insecure,
		Port: snapshot.PortOf(value.Address), Connection: value.ConnectionHeaders,
		NotAppend: value.NotAppendXForwardedFor})
	e := &Handler{current: p.current, name: value.Name, observed: p.observer.Entry(value), targets: target.Of(value),
		forwarding: f}
	if value.EncodedCharacters != nil {
		e.denied = rewrite.DeniedCharacters(value.EncodedCharacters)
	}
	return e, err
}

// ServeHTTP implements http.Handler.
func (e *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := e.observed.Begin(w, r)
	defer e.observed.End(x, r)
	e.serve(x, r)
}

// serve finds the router of the request.
func (e *Handler) serve(x *observe.Exchange, r *http.Request) {
	if r.Method == http.MethodConnect {
		http.Error(x, http.StatusText(http.StatusNotImplemented), http.StatusNotImplemented)
		return
	}
	if r.RequestURI == "*" {
		answerAsterisk(x, r)
		return
	}
	if !e.targets.Clean(r) || e.denied != nil && e.denied(r.URL.EscapedPath()) {
		http.Error(x, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	peer := forwarded.Peer(r.RemoteAddr)
	r = e.forwarding.Apply(r, peer)
	x.Request = target.Request(r, peer)
	now := e.current.Load()
	if r.TLS != nil && !now.TLS.Holds(e.name, r.TLS) {
		x.Header().Set("Connection", "close") // a new connection has the options of now
		http.Error(x, http.StatusText(http.StatusMisdirectedRequest), http.StatusMisdirectedRequest)
		return
	}
	if r.TLS != nil && !now.TLS.Hosts.Agree(e.name, r.TLS.ServerName, x.Request.Host) {
		http.Error(x, http.StatusText(http.StatusMisdirectedRequest), http.StatusMisdirectedRequest)
		return
	}
	if x.Router = now.Entries[e.name].Of(r.TLS != nil).Find(&x.Request); x.Router == nil {
		http.NotFound(x, r)
		return
	}
	if r.TLS != nil && !now.TLS.Hosts.Admits(e.name, r.TLS.ServerName, x.Router.Options, x.Router.Hostless) {
		x.Router = nil
		http.Error(x, http.StatusText(http.StatusMisdirectedRequest), http.StatusMisdirectedRequest)
		return
	}
	e.observed.Count(x)
	x.Router.Handler.ServeHTTP(x, r)
}

// answerAsterisk answers a request to the gateway as a whole: only OPTIONS may be (RFC 9112 3.2.4). As in net/http,
// the answer to that has no content.
func answerAsterisk(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodOptions {
		http.Error(w, http.StatusText(http.StatusBadRequest), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}
