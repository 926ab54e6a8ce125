package gateway

import "time"

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
	Docker    *Docker
	File      *File
	Resolvers map[string]*Resolver
	// Transport is the default way to servers.
	Transport ServersTransport
	// RuleSyntax is that of routers that name none: "v2", "v3" or empty.
	RuleSyntax string
	// LogLevel is debug, info, warn or error.
	LogLevel string
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
	Middlewares []string
	// TrustedProxies are the prefixes of peers whose X-Forwarded headers are kept;
	// Insecure keeps those of all.
	TrustedProxies []string
	Insecure       bool
	// ProxyProtocol are the prefixes of peers that send a PROXY header.
	ProxyProtocol         []string
	ProxyProtocolInsecure bool
	Timeouts              Timeouts
	HTTP3                 *HTTP3
	// MaxConcurrentStreams of an HTTP/2 connection, by default 250.
	MaxConcurrentStreams int
	// UDPTimeout ends the session of a silent client, by default 3 s.
	UDPTimeout time.Duration
}

// Redirection redirects all requests of an entry point.
type Redirection struct {
	To, Scheme string
	Permanent  bool
	// Priority is that of the router that redirects. 0 means the highest one.
	Priority int
}

// Timeouts of an entry point's connections. Read limits how long a client may be
// silent while it sends a request (60 s), Write while it receives (none), Idle between
// requests (180 s), Grace is the time for requests to end at a stop (10 s).
type Timeouts struct {
	Read, Write, Idle, Grace time.Duration
	// AcceptGrace is the time in which a stopping gateway accepts requests still.
	AcceptGrace time.Duration
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
}

// AccessLog records requests.
type AccessLog struct {
	// FilePath is empty for the standard output.
	FilePath string
	// Format is "common" (the default) or "json".
	Format        string
	BufferingSize int
	StatusCodes   []string
	RetryAttempts bool
	MinDuration   time.Duration
}

// Docker is the provider of routers from labels of containers.
type Docker struct {
	// Endpoint is unix:///var/run/docker.sock by default.
	Endpoint string
	TLS      *ClientTLS
	// ExposedByDefault: nil means true.
	ExposedByDefault   *bool
	Network            string
	DefaultRule        string
	Constraints        string
	UseBindPortIP      bool
	SwarmMode          bool
	Watch              *bool
	AllowEmptyServices bool
	// Strict drops all routers of a container with a faulty label, as Traefik does.
	Strict bool
}

// File is the provider of routers from files: one file, or the files of a directory.
type File struct {
	Filename, Directory string
	// Watch: nil means true.
	Watch *bool
}

// Resolver obtains certificates by ACME (RFC 8555).
type Resolver struct {
	Email, CAServer, Storage string
	KeyType                  string
	HTTPChallenge            string
	TLSChallenge             bool
	DNSChallenge             *DNSChallenge
}

// DNSChallenge proves the ownership of a name by a record of its zone.
type DNSChallenge struct {
	Provider         string
	Resolvers        []string
	DelayBeforeCheck time.Duration
}
