package static

import (
	"time"

	"fairlead/internal/model/gateway"
)

// allSettings are the settings of Traefik's static configuration that have an effect
// here, with the names that flags, variables and files have. Parts are pointers, so that a
// part that is given alone is different from one that is not given.
type allSettings struct {
	API                   *apiSettings
	Ping                  *gateway.Ping
	Metrics               *metricsSettings
	AccessLog             *accessLogSettings
	Log                   *logSettings
	Core                  *coreSettings
	Global                *globalSettings
	EntryPoints           map[string]*entryPointSettings
	Providers             *gateway.Providers
	CertificatesResolvers map[string]*resolverSettings
	ServersTransport      *gateway.ServersTransport
	TCPServersTransport   *gateway.TCPServersTransport
}

type apiSettings struct {
	Insecure  bool
	Dashboard *bool
	BasePath  string
}

type metricsSettings struct {
	Prometheus *gateway.Metrics
}

type accessLogSettings struct {
	FilePath, Format string
	BufferingSize    int
	AddInternals     bool
	Filters          *filterSettings
	Fields           *gateway.LogFields
}

type filterSettings struct {
	StatusCodes   []string
	RetryAttempts bool
	MinDuration   time.Duration
}

type logSettings struct {
	Level, Format, FilePath string
}

type coreSettings struct {
	DefaultRuleSyntax string
}

type globalSettings struct {
	NotAppendXForwardedFor bool
}

type entryPointSettings struct {
	Address          string
	AsDefault        bool
	ForwardedHeaders *forwardedHeaderSettings
	HTTP             *httpSettings
	HTTP2            *http2Settings
	HTTP3            *gateway.HTTP3
	Observability    *gateway.Observability
	ProxyProtocol    *trustSettings
	Transport        *transportSettings
	UDP              *udpSettings
}

type trustSettings struct {
	Insecure   bool
	TrustedIPs []string
}

type forwardedHeaderSettings struct {
	Insecure               bool
	TrustedIPs             []string
	Connection             []string
	NotAppendXForwardedFor bool
}

type httpSettings struct {
	Redirections          *redirectionSettings
	Middlewares           []string
	TLS                   *gateway.RouterTLS
	EncodeQuerySemicolons bool
	EncodedCharacters     *encodedSettings
	MaxHeaderBytes        int
	SanitizePath          *bool
}

// encodedSettings are those of gateway.EncodedCharacters; nil means true.
type encodedSettings struct {
	AllowEncodedSlash, AllowEncodedBackSlash, AllowEncodedNullCharacter *bool
	AllowEncodedSemicolon, AllowEncodedPercent                          *bool
	AllowEncodedQuestionMark, AllowEncodedHash                          *bool
}

type redirectionSettings struct {
	EntryPoint *redirectSettings
}

type redirectSettings struct {
	To, Scheme string
	Permanent  *bool
	Priority   int
}

type http2Settings struct {
	MaxConcurrentStreams int
}

type transportSettings struct {
	LifeCycle            *lifeCycleSettings
	RespondingTimeouts   *timeoutSettings
	KeepAliveMaxRequests int
	KeepAliveMaxTime     time.Duration
	// Traefik has no such settings.
	MaxConnections, MaxConnectionsPerClient int
	SNIStrict                               bool
}

type lifeCycleSettings struct {
	RequestAcceptGraceTimeout time.Duration
	GraceTimeOut              *time.Duration
}

type timeoutSettings struct {
	ReadTimeout, WriteTimeout, IdleTimeout *time.Duration
}

type udpSettings struct {
	Timeout *time.Duration
}

type resolverSettings struct {
	ACME *acmeSettings
}

type acmeSettings struct {
	Email, CAServer, Storage string
	KeyType                  string
	HTTPChallenge            *httpChallengeSettings
	TLSChallenge             *struct{}
	DNSChallenge             *dnsChallengeSettings
	CACertificates           []string
	CAServerName             string
	CASystemCertPool         bool
	EAB                      *gateway.EAB
	PreferredChain, Profile  string
}

type httpChallengeSettings struct {
	EntryPoint string
}

type dnsChallengeSettings struct {
	Provider                string
	Resolvers               []string
	DelayBeforeCheck        time.Duration
	DisablePropagationCheck bool
	Propagation             *propagationSettings
}

type propagationSettings struct {
	DelayBeforeChecks time.Duration
	DisableChecks     bool
}
