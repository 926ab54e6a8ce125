// Package gateway has the values of the HTTP gateway's configuration: entry points,
// routers, middlewares, services, transports and TLS. Its names are Traefik's, in
// which most users think and write already: a label or a key of a file is the path
// to a field, in any case.
package gateway

import "time"

// Config is what providers (Docker, files) supply and change while the gateway runs.
// The keys are qualified names, NAME@PROVIDER.
type Config struct {
	HTTP HTTP
	TCP  TCP
	UDP  UDP
	TLS  TLS
	// ACME is not from a provider: it comes from the process that obtains certificates.
	ACME ACME
	// Renamed are objects that have other names than in the last configuration, and keep their state.
	Renamed []Renamed `json:",omitempty"`
}

// Renamed is an object with another name. Kind is as in the status of the object.
type Renamed struct{ Kind, From, To string }

// FormerName returns the name that an object had in the last configuration.
func (c *Config) FormerName(kind, name string) string {
	for _, r := range c.Renamed {
		if r.Kind == kind && r.To == name {
			return r.From
		}
	}
	return name
}

// HTTP has the routers of HTTP requests and what they use.
type HTTP struct {
	Routers           map[string]*Router
	Services          map[string]*Service
	Middlewares       map[string]*Middleware
	ServersTransports map[string]*ServersTransport
}

// Router sends the requests that match its rule to a service.
type Router struct {
	// EntryPoints are names. Empty: the default entry points.
	EntryPoints []string
	Middlewares []string `refers:"middleware"`
	// Service is a name. Labels may leave it out if they define one service only.
	Service string `refers:"service"`
	Rule    string
	// RuleSyntax is "v2", "v3", or empty: the syntax that the rule parses in.
	RuleSyntax string
	// Priority orders the routers of an entry point, the highest first. 0 means the
	// length of the rule in bytes.
	Priority int
	// TLS, if not nil, restricts the router to connections with TLS; without it, the
	// router takes connections without TLS only.
	TLS           *RouterTLS
	Observability *Observability
}

// RouterTLS says how a router's connections use TLS.
type RouterTLS struct {
	// Options is the name of TLS options. Empty: "default".
	Options      string `refers:"tls options"`
	CertResolver string
	Domains      []Domain
}

// Domain has the names of one certificate.
type Domain struct {
	Main string
	SANs []string
}

// Observability says what is recorded of requests. Nil means the entry point's
// setting.
type Observability struct {
	AccessLogs, Metrics, Tracing *bool
	TraceVerbosity               string
}

// Service is one of its fields: the others are nil.
type Service struct {
	LoadBalancer        *LoadBalancer
	HighestRandomWeight *Weighted
	Weighted            *Weighted
	Mirroring           *Mirroring
	Failover            *Failover
	// Middlewares apply to each request to the service.
	Middlewares []string `refers:"middleware"`
}

// LoadBalancer divides requests between servers.
type LoadBalancer struct {
	Servers []Server
	// Strategy is "wrr" (the default), "p2c", "hrw" or "leasttime".
	Strategy           string
	Sticky             *Sticky
	HealthCheck        *HealthCheck
	PassiveHealthCheck *PassiveHealthCheck
	// PassHostHeader sends the client's Host header. Nil means true.
	PassHostHeader     *bool
	ResponseForwarding *ResponseForwarding
	ServersTransport   string `refers:"transport"`
}

// Server is an HTTP server. Labels give Port and Scheme, or URL; files give URL. The tag
// "declared" marks fields for a daemon: "only" is a key of fairlead.yaml, and not of labels
// and files of Traefik; "never" is no key. The daemon replaces servers that name a virtual
// service or select containers by servers with a URL.
type Server struct {
	URL    string `secret:"url"`
	Scheme string
	Port   string
	// Weight is nil for 1. A server with weight 0 gets no request.
	Weight *int
	// PreservePath puts the path of the URL before that of each request. Without it, the path of the
	// URL has no effect.
	PreservePath bool
	// Fenced servers get requests of existing sessions only.
	Fenced bool
	// Service is the name of a virtual service: each of its real servers is a server.
	Service string `declared:"only"`
	// Label, Name and Network select containers, as those of a real server do. Each one is
	// a server at Port.
	Label, Name, Network string `declared:"only"`
	// Down is why the server gets no request at present. Its daemon sets it.
	Down string `declared:"never"`
}

// Sticky keeps a client on its server.
type Sticky struct {
	Cookie *Cookie
}

// Cookie is the cookie of a session.
type Cookie struct {
	// Name is by default "_" and the first 5 hexadecimal digits of the SHA-1 of
	// "_TRAEFIK_BACKEND_" and the service's name, so that sessions survive a
	// migration from Traefik.
	Name             string
	Secure, HTTPOnly bool
	// SameSite is "none", "lax", "strict" or empty.
	SameSite string
	// MaxAge is in seconds; 0 leaves it out, a negative one ends the session at once.
	MaxAge int
	// Path is by default "/".
	Path   *string
	Domain string
}

// HealthCheck asks each server with an HTTP request whether it is up.
type HealthCheck struct {
	Scheme string
	// Mode is "http" (the default) or "grpc".
	Mode string
	Path string `secret:"url"`
	// Method is by default GET.
	Method string
	// Status is the expected status. 0 means 2xx and 3xx.
	Status int
	Port   int
	// Interval is by default 30 s, Timeout 5 s. UnhealthyInterval is the interval for
	// servers that are down, by default Interval.
	Interval, UnhealthyInterval, Timeout time.Duration
	Hostname                             string
	// FollowRedirects: nil means true.
	FollowRedirects *bool
	Headers         map[string]string `secret:"headers"`
}

// PassiveHealthCheck takes a server out after failed requests.
type PassiveHealthCheck struct {
	// FailureWindow is by default 10 s, MaxFailedAttempts 1.
	FailureWindow     time.Duration
	MaxFailedAttempts int
}

// ResponseForwarding says when parts of a response are sent on.
type ResponseForwarding struct {
	// FlushInterval is by default 100 ms; a negative one sends each part at once. Parts from servers of
	// HTTP/1.1 without TLS are always sent at once.
	FlushInterval time.Duration
}

// Weighted divides requests between services.
type Weighted struct {
	Services    []WeightedService `refers:"service"`
	Sticky      *Sticky
	HealthCheck *struct{}
}

// WeightedService is a service and its weight. A nil weight means 1.
type WeightedService struct {
	Name   string
	Weight *int
}

// Mirroring sends a share of requests to other services also, and ignores their
// responses.
type Mirroring struct {
	Service string   `refers:"service"`
	Mirrors []Mirror `refers:"service"`
	// MirrorBody: nil means true.
	MirrorBody *bool
	// MaxBodySize is in bytes. Nil means no limit.
	MaxBodySize *int64
	HealthCheck *struct{}
}

// Mirror is a service and the percentage of requests that it gets.
type Mirror struct {
	Name    string
	Percent int
}

// Failover sends requests to the fallback while the service is down.
type Failover struct {
	Service, Fallback string `refers:"service"`
	HealthCheck       *struct{}
}
