package gateway

import (
	"path"
	"regexp"
	"strings"
	"time"
)

// Static is what stays the same while the gateway runs.
type Static struct {
	EntryPoints []EntryPoint
	// Default has the names of the entry points of routers that name none.
	Default []string
	// API, Ping and Metrics are the gateway's own services.
	API     *API
	Ping    *Ping
	Metrics *Metrics
	// AccessLog is nil if requests are not logged.
	AccessLog *AccessLog
	Providers
	Resolvers map[string]*Resolver
	// Transport and TCPTransport are how the gateway connects to servers whose service
	// names no transport.
	Transport    ServersTransport
	TCPTransport TCPServersTransport
	// RuleSyntax is that of routers that name none: "v2", "v3" or empty.
	RuleSyntax string
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// LogFormat is "common" (the default) or "json".
	LogFormat string
	// LogFile is empty for the standard output.
	LogFile string
}

// EntryPoint is an address where the gateway accepts connections or datagrams.
type EntryPoint struct {
	Name string
	// Address is HOST:PORT with an optional /tcp or /udp.
	Address string
	// AsDefault makes it one of the default entry points.
	AsDefault bool
	// Redirect, if not nil, redirects all requests to another entry point.
	Redirect *Redirection
	// TLS and Middlewares are defaults of its routers.
	TLS         *RouterTLS
	Middlewares []string `refers:"middleware"`
	// TrustedProxies are the prefixes of peers whose X-Forwarded headers are kept;
	// Insecure keeps those of all.
	TrustedProxies []string
	Insecure       bool
	// ConnectionHeaders are headers that a client may name in Connection, and that rules and
	// middlewares see nevertheless.
	ConnectionHeaders []string
	// NotAppendXForwardedFor leaves the client's address out of X-Forwarded-For.
	NotAppendXForwardedFor bool
	// ProxyProtocol are the prefixes of peers that send a PROXY header.
	ProxyProtocol         []string
	ProxyProtocolInsecure bool
	Timeouts              Timeouts
	// MaxRequests and MaxAge end a connection of HTTP/1.1 or HTTP/2 with the response after
	// so many requests or so long. 0 means no limit.
	MaxRequests int
	MaxAge      time.Duration
	// MaxConnections is by default half of the descriptors that the process may have,
	// divided between the entry points. MaxConnectionsPerClient limits those from one
	// address, or one /64 of IPv6, by default 16384 and at most half of MaxConnections;
	// proxies in TrustedProxies are exempt.
	MaxConnections, MaxConnectionsPerClient int
	// SNIStrict refuses TLS handshakes for names that no certificate has, whatever the TLS
	// options are.
	SNIStrict bool
	// MaxHeaderBytes of a request, by default 1 MiB.
	MaxHeaderBytes int
	// SanitizePath removes dot segments and repeated slashes of paths. Nil means true.
	SanitizePath *bool
	// EncodeQuerySemicolons sends semicolons of the query in their escaped form.
	EncodeQuerySemicolons bool
	// EncodedCharacters says which escapes a path may have. Nil means all.
	EncodedCharacters *EncodedCharacters
	// Observability is the default of its routers.
	Observability *Observability
	HTTP3         *HTTP3
	// MaxConcurrentStreams of an HTTP/2 connection, by default 250.
	MaxConcurrentStreams int
	// UDPTimeout ends the session of a silent client, by default 3 s.
	UDPTimeout time.Duration
}

// IsUDP reports whether the entry point receives datagrams.
func (e *EntryPoint) IsUDP() bool {
	_, protocol, _ := strings.Cut(e.Address, "/")
	return strings.EqualFold(protocol, "udp")
}

// Redirection redirects all requests of an entry point.
type Redirection struct {
	To, Scheme string
	Permanent  bool
	// Priority is that of the router that redirects. 0 means the highest one.
	Priority int
}

// Timeouts of an entry point's connections. Nil means the default; Limits has the meaning of each.
type Timeouts struct {
	Read, Write, Idle, Grace *time.Duration
	// AcceptGrace is the time in which a stopping gateway accepts requests still.
	AcceptGrace time.Duration
}

// TimeLimits are the limits of an entry point's connections. 0 means no limit, except for Grace.
type TimeLimits struct {
	// Read limits how long a client may be silent while it sends the body of a request, Write while it receives
	// a response, Idle between requests.
	Read, Write, Idle time.Duration
	// Grace is the time for requests to end at a stop. 0 ends them at once, as in Traefik.
	Grace time.Duration
}

// DefaultTimeLimits returns the limits of an entry point that sets none.
func DefaultTimeLimits() TimeLimits {
	return TimeLimits{Read: time.Minute, Write: time.Minute, Idle: 3 * time.Minute, Grace: 10 * time.Second}
}

// Limits returns the limits, with the default for each timeout that is not set.
func (t Timeouts) Limits(byDefault TimeLimits) TimeLimits {
	or := func(set *time.Duration, other time.Duration) time.Duration {
		if set != nil {
			return *set
		}
		return other
	}
	return TimeLimits{Read: or(t.Read, byDefault.Read), Write: or(t.Write, byDefault.Write),
		Idle: or(t.Idle, byDefault.Idle), Grace: or(t.Grace, byDefault.Grace)}
}

// HTTP3 enables HTTP/3.
type HTTP3 struct {
	// AdvertisedPort is the port in Alt-Svc, by default the entry point's.
	AdvertisedPort int
}

// API is the read-only API about routers, services and middlewares.
type API struct {
	Dashboard bool
	// Insecure serves the API at the entry point "traefik".
	Insecure bool
	// BasePath is "/" or the path below which the API and the dashboard are served, such as "/traefik".
	BasePath string
}

// Prefix returns what the paths of the API and the dashboard begin with: BasePath without a slash at its end. It is
// empty for what IsBasePath refuses: earlier daemons have stored any text, which had no effect.
func (a *API) Prefix() string {
	if !IsBasePath(a.BasePath) {
		return ""
	}
	return strings.TrimSuffix(a.BasePath, "/")
}

// plainPath matches the paths that mean the same in URLs, rules and HTML.
var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*/?$`)

// IsBasePath reports whether a text can be a BasePath: it changes no rule and no link.
func IsBasePath(text string) bool {
	clean := path.Clean("/" + text)
	return plainPath.MatchString(text) && (text == "" || text == clean || text == clean+"/")
}

// Ping answers 200 at /ping while the gateway accepts requests.
type Ping struct {
	EntryPoint            string
	ManualRouting         bool
	TerminatingStatusCode int
}

// Metrics are those for Prometheus.
type Metrics struct {
	EntryPoint                                                string
	ManualRouting                                             bool
	AddEntryPointsLabels, AddRoutersLabels, AddServicesLabels *bool
	Buckets                                                   []float64
	// HeaderLabels are further labels of the counters of requests: by the label's name,
	// the request header that has its value.
	HeaderLabels map[string]string
}

// AccessLog records requests.
type AccessLog struct {
	// FilePath is empty for the standard output.
	FilePath string
	// Format is "common" (the default), "genericCLF" or "json".
	Format        string
	BufferingSize int
	StatusCodes   []string
	RetryAttempts bool
	MinDuration   time.Duration
	// AddInternals records the requests of the gateway's own services too.
	AddInternals bool
	Fields       *LogFields
}

// LogFields says which fields of a request the access log has. A mode is "keep", "drop" or,
// for headers, "redact".
type LogFields struct {
	// DefaultMode is by default "keep".
	DefaultMode     string
	Names           map[string]string
	Headers         *LogHeaders
	QueryParameters *LogQuery
}

// LogHeaders says which headers the access log has. DefaultMode is by default "drop".
type LogHeaders struct {
	DefaultMode string
	Names       map[string]string
}

// LogQuery says whether the paths in the access log have their query. DefaultMode is by default
// "keep".
type LogQuery struct {
	DefaultMode string
}

// Resolver obtains certificates by ACME (RFC 8555).
type Resolver struct {
	Email, CAServer, Storage string
	KeyType                  string
	HTTPChallenge            string
	TLSChallenge             bool
	DNSChallenge             *DNSChallenge
	// CACertificates are files or PEM texts that the server's certificate is verified
	// with, as CAServerName if that is not empty. CASystemCertPool adds the system's.
	CACertificates          []string
	CAServerName            string
	CASystemCertPool        bool
	EAB                     *EAB
	PreferredChain, Profile string
}

// EAB is the account at the authority that an ACME account is bound to (RFC 8555, 7.3.4).
type EAB struct {
	KID         string
	HMACEncoded string `secret:"whole"`
}

// DNSChallenge proves the ownership of a name by a record of its zone.
type DNSChallenge struct {
	Provider         string
	Resolvers        []string
	DelayBeforeCheck time.Duration
	// DisableChecks asks for the certificate without waiting until the record is seen.
	DisableChecks bool
}
