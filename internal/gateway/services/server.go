package services

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"fairlead/internal/gateway/condition"
	"fairlead/internal/gateway/sticky"
	"fairlead/internal/gateway/transport"
	"fairlead/internal/model/gateway"
)

// server is a server of load balancers. It lives as long as a service uses it, so its
// connections survive changes of others.
type server struct {
	url *url.URL
	// key identifies it: its URL, and the transport to it.
	key string
	// pending is the number of requests without an answer.
	pending atomic.Int64
	pace    condition.Pace
	forward transport.Forwarder
	// uses counts the services that have it. Only changes of the configuration use it.
	uses int
}

// member is a server of a service.
type member struct {
	*server
	*condition.Condition
}

// place is a server in a load balancer.
type place struct {
	member
	weight       int
	fenced       bool
	preservePath bool
	// cookies are the values of a cookie that name it.
	cookies []string
}

func newPlace(m member, weight int, fenced, preservePath bool) *place {
	return &place{member: m, weight: weight, fenced: fenced, preservePath: preservePath,
		cookies: sticky.ServerValues(m.url.String())}
}

// parseServer checks the URL of a server.
func parseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c" {
		return nil, fmt.Errorf("server %q: want a URL with http, https or h2c, for example http://10.0.0.2:8080",
			gateway.ShownURL(text))
	}
	if u.Host == "" {
		return nil, fmt.Errorf("server %s: it has no host", gateway.ShownURL(text))
	}
	return u, nil
}

// addressed returns the request with the path of the server's URL before its own if the server has
// preservePath. The path of the URL of other servers has no effect, as in Traefik.
func (p *place) addressed(r *http.Request) *http.Request {
	base := p.url.EscapedPath()
	if !p.preservePath || base == "" || base == "/" {
		return r
	}
	to := *r
	u := *r.URL
	u.Path, u.RawPath = joinPath(p.url.Path, u.Path), joinPath(base, r.URL.EscapedPath())
	to.URL = &u
	return &to
}

// joinPath returns the server's path and the request's. An empty one means "/", as in a request line.
func joinPath(base, path string) string { return strings.TrimSuffix(base, "/") + cmp.Or(path, "/") }
