package gateway

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/target"
	"fairlead/internal/model/gateway"
)

// What an explanation shows; see package shown.
type (
	Answer           = shown.Answer
	ServerState      = shown.ServerState
	Nearest          = shown.Nearest
	ShownCertificate = shown.Certificate
)

// Explain says which router a request takes that arrives at the entry point. If the name of
// the entry point is empty, it is the one at the port of the URL. If there is none, all are
// tried: a port may be mapped to another one.
func (g *Gateway) Explain(entry, method, text string) (Answer, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Answer{}, fmt.Errorf("URL %s: want http://HOST/PATH or https://HOST/PATH", text)
	}
	r := &http.Request{Method: method, URL: u, Host: u.Host, RequestURI: u.RequestURI(), Header: http.Header{}}
	if u.Scheme == "https" {
		r.TLS = &tls.ConnectionState{ServerName: u.Hostname()}
	}
	if u.Path == "" {
		u.Path = "/"
	}
	entries := g.entriesFor(entry, u)
	var prepared target.Cleaner
	if len(entries) > 0 {
		prepared = target.Of(entries[0])
	}
	if !prepared.Clean(r) {
		return Answer{}, fmt.Errorf("URL %s: its path is invalid: the answer is 400", text)
	}
	request := target.Request(r, netip.Addr{})
	now := g.current.Load()
	var missed Answer
	if len(entries) == 1 {
		missed.EntryPoint, missed.Address = entries[0].Name, entries[0].Address
	}
	for _, e := range entries {
		if found := now.entries[e.Name].of(r.TLS != nil).Find(&request); found != nil {
			a := now.answer(e, r, found, g.objects.Down(found.Service))
			addFailures(a.Servers, g.objects.LastFailures(found.Service))
			a.Nearest = slices.DeleteFunc(now.disabled(&request), func(n Nearest) bool {
				return n.Router == found.Name
			})
			return a, nil
		}
	}
	missed.Nearest = now.nearest(g.static.EntryPoints, entries, r.TLS != nil, &request)
	missed.Problems = now.lostSources()
	if r.TLS != nil && len(entries) == 1 {
		var problems []string
		missed.Certificate, problems = now.shownCertificate(entries[0], u.Hostname())
		missed.Problems = append(missed.Problems, problems...)
	}
	return missed, nil
}

// entriesFor returns the entry points that a request for a URL may arrive at. If they do not
// follow from its port, those that redirect all requests do not count.
func (g *Gateway) entriesFor(name string, u *url.URL) []gateway.EntryPoint {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	var all, at []gateway.EntryPoint
	for _, e := range g.static.EntryPoints {
		if strings.HasSuffix(e.Address, "/udp") || name != "" && e.Name != name {
			continue
		}
		if all = append(all, e); portOfAddress(e.Address) == port {
			at = append(at, e)
		}
	}
	if name == "" && len(at) > 0 {
		return at
	}
	if len(all) > 1 {
		all = slices.DeleteFunc(all, func(e gateway.EntryPoint) bool { return e.Redirect != nil })
	}
	return all
}

// answer describes the router that takes a request.
func (s *snapshot) answer(e gateway.EntryPoint, r *http.Request, found *route.Router, down []string) Answer {
	a := Answer{EntryPoint: e.Name, Address: e.Address, Router: found.Name, Service: found.Service}
	if v := s.config.HTTP.Routers[found.Name]; v != nil {
		a.Rule, a.Middlewares = v.Rule, slices.Concat(e.Middlewares, v.Middlewares)
	}
	if r.TLS != nil {
		a.Certificate, a.Problems = s.shownCertificate(e, r.TLS.ServerName)
		a.Problems = append(a.Problems, s.tls.misdirected(e.Name, r.TLS.ServerName, found)...)
	}
	a.Problems = append(a.Problems, s.doubts("router", found.Name)...)
	if e.Redirect != nil && a.Rule == "" && found.Service == "noop@internal" {
		a.Service = ""
		a.Problems = append(a.Problems, "the entry point redirects all requests to "+e.Redirect.To)
		return a
	}
	v := s.config.HTTP.Services[found.Service]
	if v == nil || v.LoadBalancer == nil {
		return a
	}
	a.Servers = serverStates(v.LoadBalancer, down)
	if !slices.ContainsFunc(a.Servers, func(s ServerState) bool { return s.State == "up" }) {
		a.Problems = append(a.Problems, "the service has no server that is up: the answer is 503")
	}
	return a
}

// doubts returns what is doubtful about an object that is in use.
func (s *snapshot) doubts(kind, name string) []string {
	for _, at := range s.statuses {
		if at.Kind == kind && at.Name == name && at.State == status.Warning {
			return at.Reasons
		}
	}
	return nil
}

// lostSources returns why the files and containers that have no objects have none: one of them may have
// the router of a request.
func (s *snapshot) lostSources() (all []string) {
	for _, at := range s.statuses {
		if at.Kind == "source" && at.State == status.Disabled {
			all = append(all, at.Name+": "+strings.Join(at.Reasons, "; "))
		}
	}
	return all
}

// serverStates returns the servers of a service. down are the URLs whose checks have failed.
func serverStates(value *gateway.LoadBalancer, down []string) []ServerState {
	var all []ServerState
	for _, one := range value.Servers {
		state := ServerState{URL: gateway.ShownURL(one.URL), State: "up"}
		switch {
		case one.Down != "":
			state.State, state.Reason = "down", one.Down
		case slices.Contains(down, one.URL):
			state.State, state.Reason = "down", "its check failed"
		case one.Fenced:
			state.State, state.Reason = "draining", "it gets requests of existing sessions only"
		}
		all = append(all, state)
	}
	return all
}

// addFailures adds the last failures, by the URLs of servers.
func addFailures(to []ServerState, failures map[string]shown.Failure) {
	for i := range to {
		if last, failed := failures[to[i].URL]; failed {
			to[i].LastFailure = &last
		}
	}
}

// serveExplain answers GET /api/explain?url=URL with an Answer; method and entryPoint are
// optional.
func (g *Gateway) serveExplain(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a, err := g.Explain(q.Get("entryPoint"), cmp.Or(q.Get("method"), http.MethodGet), q.Get("url"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // the client may be gone
}
