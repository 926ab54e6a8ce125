package gateway

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"fairlead/internal/gateway/rule"
)

// Answer says which router a request takes, or why none.
type Answer struct {
	// Router and Service are empty if no router matches.
	Router      string   `json:"router,omitempty"`
	Service     string   `json:"service,omitempty"`
	Middlewares []string `json:"middlewares,omitempty"`
	// Nearest are routers that almost match, or that another router precedes.
	Nearest []Nearest `json:"nearest,omitempty"`
}

// Nearest is a router that the request does not take, and why.
type Nearest struct {
	Router string   `json:"router"`
	Why    []string `json:"why"`
}

// mostNearest is how many routers an answer explains.
const mostNearest = 5

// Explain says which router of the entry point a request takes. An empty entry point
// means the one that suits the URL's port and scheme best.
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
	if !cleanTarget(r) {
		return Answer{}, fmt.Errorf("URL %s: its path is invalid: the answer is 400", text)
	}
	request := requestOf(r, netip.Addr{})
	now := g.current.Load()
	var answer Answer
	for _, e := range g.static.EntryPoints {
		if entry != "" && e.Name != entry {
			continue
		}
		routes := now.entries[e.Name]
		if found := routes.of(r.TLS != nil).Find(&request); found != nil {
			answer = Answer{Router: found.Name, Service: found.Service}
			if v := now.config.HTTP.Routers[found.Name]; v != nil {
				answer.Middlewares = v.Middlewares
			}
			return answer, nil
		}
		answer.Nearest = append(answer.Nearest, routes.nearest(r.TLS != nil, &request)...)
	}
	answer.Nearest = answer.Nearest[:min(len(answer.Nearest), mostNearest)]
	return answer, nil
}

// nearest explains why routers do not match. Those that would match with the other
// kind of connection come first.
func (e *entryRoutes) nearest(secure bool, r *rule.Request) []Nearest {
	var all []Nearest
	if other := e.of(!secure).Find(r); other != nil {
		why := "it has tls, so it takes only https"
		if secure {
			why = "it has no tls, so it takes only http: set tls=true"
		}
		all = append(all, Nearest{other.Name, []string{why}})
	}
	for _, router := range e.of(secure).All() {
		n := Nearest{Router: router.Name}
		for _, f := range router.Rule.Explain(r) {
			n.Why = append(n.Why, fmt.Sprintf("%s does not match: the request has %s", f.Matcher, f.Got))
		}
		all = append(all, n)
	}
	slices.SortStableFunc(all, func(a, b Nearest) int { return cmp.Compare(len(a.Why), len(b.Why)) })
	return all
}
