package explain

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/target"
	"fairlead/internal/model/gateway"
)

// Explain says which router a request takes that arrives at the entry point. If the name of
// the entry point is empty, it is the one at the port of the URL. If there is none, all are
// tried: a port may be mapped to another one.
func (s Source) Explain(entry, method, text string) (shown.Answer, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return shown.Answer{}, fmt.Errorf("URL %s: want http://HOST/PATH or https://HOST/PATH", text)
	}
	r := &http.Request{Method: method, URL: u, Host: u.Host, RequestURI: u.RequestURI(), Header: http.Header{}}
	if u.Scheme == "https" {
		r.TLS = &tls.ConnectionState{ServerName: u.Hostname()}
	}
	if u.Path == "" {
		u.Path = "/"
	}
	entries := s.entriesFor(entry, u)
	var prepared target.Cleaner
	if len(entries) > 0 {
		prepared = target.Of(entries[0])
	}
	if !prepared.Clean(r) {
		return shown.Answer{}, fmt.Errorf("URL %s: its path is invalid: the answer is 400", text)
	}
	request := target.Request(r, netip.Addr{})
	var missed shown.Answer
	if len(entries) == 1 {
		missed.EntryPoint, missed.Address = entries[0].Name, entries[0].Address
	}
	for _, e := range entries {
		if found := s.Entries[e.Name].Of(r.TLS != nil).Find(&request); found != nil {
			a := s.answer(e, r, found)
			addFailures(a.Servers, s.Failures(found.Service))
			a.Nearest = slices.DeleteFunc(s.disabled(&request), func(n shown.Nearest) bool {
				return n.Router == found.Name
			})
			return a, nil
		}
	}
	missed.Nearest = s.nearest(s.Static.EntryPoints, entries, r.TLS != nil, &request)
	missed.Problems = s.lostSources()
	if r.TLS != nil && len(entries) == 1 {
		var problems []string
		missed.Certificate, problems = s.shownCertificate(entries[0], u.Hostname())
		missed.Problems = append(missed.Problems, problems...)
	}
	return missed, nil
}

// answer describes the router that takes a request.
func (s Source) answer(e gateway.EntryPoint, r *http.Request, found *route.Router) shown.Answer {
	a := shown.Answer{EntryPoint: e.Name, Address: e.Address, Router: found.Name, Service: found.Service}
	if v := s.Config.HTTP.Routers[found.Name]; v != nil {
		a.Rule, a.Middlewares = v.Rule, slices.Concat(e.Middlewares, v.Middlewares)
	}
	if r.TLS != nil {
		a.Certificate, a.Problems = s.shownCertificate(e, r.TLS.ServerName)
		a.Problems = append(a.Problems, s.misdirected(e.Name, r.TLS.ServerName, found)...)
	}
	a.Problems = append(a.Problems, s.doubts("router", found.Name)...)
	if e.Redirect != nil && a.Rule == "" && found.Service == "noop@internal" {
		a.Service = ""
		a.Problems = append(a.Problems, "the entry point redirects all requests to "+e.Redirect.To)
		return a
	}
	v := s.Config.HTTP.Services[found.Service]
	if v == nil || v.LoadBalancer == nil {
		return a
	}
	a.Servers = serverStates(v.LoadBalancer, s.Down(found.Service))
	if !slices.ContainsFunc(a.Servers, func(s shown.ServerState) bool { return s.State == "up" }) {
		a.Problems = append(a.Problems, "the service has no server that is up: the answer is 503")
	}
	return a
}

// Handler answers GET /api/explain?url=URL with an answer; method and entryPoint are
// optional.
func Handler(now func() Source) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		a, err := now().Explain(q.Get("entryPoint"), cmp.Or(q.Get("method"), http.MethodGet), q.Get("url"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a) // the client may be gone
	}
}
