package gateway

import (
	"reflect"
	"time"
)

// Middleware is one of its fields: the others are nil. The tag "package" names the package below
// internal/gateway/middleware that has the constructor: New and the name of the type.
type Middleware struct {
	AddPrefix         *AddPrefix `package:"rewrite"`
	BasicAuth         *BasicAuth `package:"auth"`
	Buffering         *Buffering `package:"body"`
	Chain             *Chain
	CircuitBreaker    *CircuitBreaker    `package:"failure"`
	Compress          *Compress          `package:"body"`
	ContentType       *ContentType       `package:"body"`
	DigestAuth        *DigestAuth        `package:"auth"`
	EncodedCharacters *EncodedCharacters `package:"rewrite"`
	Errors            *Errors            `package:"failure"`
	ForwardAuth       *ForwardAuth       `package:"auth"`
	GRPCWeb           *GRPCWeb           `package:"body"`
	Headers           *Headers           `package:"headers"`
	InFlightReq       *InFlightReq       `package:"limit"`
	IPAllowList       *IPAllowList       `package:"limit"`
	IPWhiteList       *IPAllowList       `package:"limit"`
	PassTLSClientCert *PassTLSClientCert `package:"headers"`
	// Plugin has the settings of Traefik's plugins by name. None exists here: it makes
	// its routers faulty, with the native replacement in the message.
	Plugin           map[string]map[string]string `secret:"whole"`
	RateLimit        *RateLimit                   `package:"limit"`
	RedirectRegex    *RedirectRegex               `package:"rewrite"`
	RedirectScheme   *RedirectScheme              `package:"rewrite"`
	ReplacePath      *ReplacePath                 `package:"rewrite"`
	ReplacePathRegex *ReplacePathRegex            `package:"rewrite"`
	Retry            *Retry                       `package:"failure"`
	StripPrefix      *StripPrefix                 `package:"rewrite"`
	StripPrefixRegex *StripPrefixRegex            `package:"rewrite"`
}

// AddPrefix puts a prefix before the path.
type AddPrefix struct {
	Prefix string
}

// BasicAuth asks for a name and password (RFC 7617).
type BasicAuth struct {
	// Users are lines of htpasswd: NAME:HASH with bcrypt, MD5 (apr1) or SHA-1.
	Users     []string `secret:"user"`
	UsersFile string   `file:"lines"`
	// Realm is by default "traefik".
	Realm        string
	RemoveHeader bool
	// HeaderField is the request header with the user's name for the server.
	HeaderField string
}

// DigestAuth asks for a name and the digest of a password (RFC 7616).
type DigestAuth struct {
	// Users are lines of htdigest: NAME:REALM:MD5.
	Users        []string `secret:"user"`
	UsersFile    string   `file:"lines"`
	Realm        string
	RemoveHeader bool
	HeaderField  string
}

// Buffering reads whole bodies before it sends them on. All sizes are in bytes; 0
// means no limit, and 1 MiB of memory.
type Buffering struct {
	MaxRequestBodyBytes, MemRequestBodyBytes   int64
	MaxResponseBodyBytes, MemResponseBodyBytes int64
	RetryExpression                            string
}

// Chain names middlewares, in order.
type Chain struct {
	Middlewares []string `refers:"middleware"`
}

// CircuitBreaker stops requests to a failing service for a while.
type CircuitBreaker struct {
	Expression string
	// CheckPeriod is by default 100 ms, FallbackDuration 10 s, RecoveryDuration 10 s.
	CheckPeriod, FallbackDuration, RecoveryDuration time.Duration
	// ResponseCode is by default 503.
	ResponseCode int
}

// Compress compresses responses.
type Compress struct {
	ExcludedContentTypes, IncludedContentTypes []string
	// MinResponseBodyBytes is by default 1024.
	MinResponseBodyBytes int
	// Encodings are by default gzip, br and zstd.
	Encodings       []string
	DefaultEncoding string
}

// ContentType sets a missing Content-Type of a response.
type ContentType struct {
	// AutoDetect is v2's switch. Nil means true.
	AutoDetect *bool
}

// EncodedCharacters allows encoded characters in paths.
type EncodedCharacters struct {
	AllowEncodedSlash, AllowEncodedBackSlash, AllowEncodedNullCharacter bool
	AllowEncodedSemicolon, AllowEncodedPercent                          bool
	AllowEncodedQuestionMark, AllowEncodedHash                          bool
}

// Errors replaces responses of some statuses by pages of a service.
type Errors struct {
	// Status has numbers and ranges, such as 500-599.
	Status         []string
	StatusRewrites map[string]int
	Service        string `refers:"service"`
	// Query is a path; {status}, {originalStatus} and {url} are replaced.
	Query               string `secret:"url"`
	ErrorRequestHeaders []string
}

// ForwardAuth asks another server whether to accept a request.
type ForwardAuth struct {
	Address string `secret:"url"`
	TLS     *ClientTLS
	// TrustForwardHeader sends the X-Forwarded headers of the request. If false, all are made anew; nil
	// keeps those about the connection.
	TrustForwardHeader       *bool
	AuthResponseHeaders      []string
	AuthResponseHeadersRegex string
	AuthRequestHeaders       []string
	AddAuthCookiesToResponse []string
	HeaderField              string
	ForwardBody              bool
	// MaxBodySize and MaxResponseBodySize are in bytes. Nil means no limit.
	MaxBodySize, MaxResponseBodySize *int64
	PreserveLocationHeader           bool
	PreserveRequestMethod            bool
	AuthSigninURL                    string `secret:"url"`
}

// Unused returns a note if the option caOptional is set.
func (f *ForwardAuth) Unused() []string {
	if f.TLS == nil || f.TLS.CAOptional == nil {
		return nil
	}
	return []string{"tls.caOptional has no effect, as in Traefik v3: the server chooses whether it asks for a certificate"}
}

// ClientTLS is TLS to another server. The values are file names or PEM texts.
type ClientTLS struct {
	CA, Cert           string `file:"text"`
	Key                string `file:"text" secret:"key"`
	InsecureSkipVerify bool
	// CAOptional is ignored, as in Traefik v3.
	CAOptional *bool
}

// GRPCWeb translates gRPC-Web requests to gRPC.
type GRPCWeb struct {
	AllowOrigins []string
}

// Headers sets headers of requests and responses. An empty value deletes the header.
type Headers struct {
	CustomRequestHeaders, CustomResponseHeaders map[string]string `secret:"headers"`

	AccessControlAllowCredentials                          bool
	AccessControlAllowHeaders, AccessControlAllowMethods   []string
	AccessControlAllowOriginList                           []string
	AccessControlAllowOriginListRegex                      []string `regexp:"true"`
	AccessControlExposeHeaders                             []string
	AccessControlMaxAge                                    int64
	AddVaryHeader                                          bool
	AllowedHosts, HostsProxyHeaders                        []string
	SSLProxyHeaders                                        map[string]string `secret:"headers"`
	STSSeconds                                             int64
	STSIncludeSubdomains, STSPreload, ForceSTSHeader       bool
	FrameDeny                                              bool
	CustomFrameOptionsValue                                string
	ContentTypeNosniff                                     bool
	BrowserXSSFilter                                       bool
	CustomBrowserXSSValue                                  string
	ContentSecurityPolicy, ContentSecurityPolicyReportOnly string
	PublicKey, ReferrerPolicy                              string
	FeaturePolicy, PermissionsPolicy                       string
	IsDevelopment                                          bool
	SSLRedirect, SSLTemporaryRedirect, SSLForceHost        bool
	SSLHost                                                string
}

// InFlightReq limits the requests at the same time.
type InFlightReq struct {
	Amount          int64
	SourceCriterion *SourceCriterion
}

// SourceCriterion says which requests have the same source.
type SourceCriterion struct {
	IPStrategy        *IPStrategy
	RequestHeaderName string
	RequestHost       bool
}

// IPStrategy says which address is the client's.
type IPStrategy struct {
	// Depth is the position in X-Forwarded-For from the right; 0 means the peer's
	// address.
	Depth       int
	ExcludedIPs []string
	// IPv6Subnet is the length of the prefix that counts as one source.
	IPv6Subnet *int
}

// IPAllowList accepts clients of these prefixes only.
type IPAllowList struct {
	SourceRange []string
	IPStrategy  *IPStrategy
	// RejectStatusCode is by default 403.
	RejectStatusCode int
}

// PassTLSClientCert sends the client's certificate in headers.
type PassTLSClientCert struct {
	PEM  bool
	Info *CertificateInfo
}

// CertificateInfo names what is sent of a certificate.
type CertificateInfo struct {
	NotAfter, NotBefore, SANs, SerialNumber bool
	Subject, Issuer                         *CertificateName
}

// CertificateName names the parts of a distinguished name. OrganizationalUnit is sent
// of subjects only.
type CertificateName struct {
	Country, Province, Locality, Organization, OrganizationalUnit bool
	CommonName, SerialNumber, DomainComponent                     bool
}

// RateLimit limits the rate of requests per source with a token bucket.
type RateLimit struct {
	// Average is the number of requests in a Period, by default 1 s. 0 means no limit.
	Average int64
	Period  time.Duration
	// Burst is by default 1.
	Burst           int64
	SourceCriterion *SourceCriterion
	Redis           *Redis
}

// Redis is a shared store of rates. None exists here: it makes its routers faulty.
type Redis struct {
	Endpoints                              []string `secret:"url"`
	TLS                                    *ClientTLS
	Username                               string
	Password                               string `secret:"whole"`
	DB, PoolSize, MinIdleConns             int
	MaxActiveConns                         int
	ReadTimeout, WriteTimeout, DialTimeout time.Duration
}

// RedirectRegex redirects URLs that match.
type RedirectRegex struct {
	Regex       string `regexp:"true"`
	Replacement string `secret:"url"`
	Permanent   bool
}

// RedirectScheme redirects to another scheme or port.
type RedirectScheme struct {
	Scheme, Port string
	Permanent    bool
}

// ReplacePath replaces the path, and sends the original in X-Replaced-Path.
type ReplacePath struct {
	Path string
}

// ReplacePathRegex replaces paths that match.
type ReplacePathRegex struct {
	Regex       string `regexp:"true"`
	Replacement string
}

// Retry sends a request again, to another server if there is one.
type Retry struct {
	Attempts        int
	InitialInterval time.Duration
	Timeout         time.Duration
	// MaxRequestBodyBytes of a request that is sent again. Nil means 2 MiB.
	MaxRequestBodyBytes        *int64
	Status                     []string
	DisableRetryOnNetworkError bool
	RetryNonIdempotentMethod   bool
}

// StripPrefix removes the first of the prefixes that the path has, and sends it in
// X-Forwarded-Prefix.
type StripPrefix struct {
	Prefixes []string
	// ForceSlash is v2's switch: a path of which nothing remains becomes "/", else it is empty. Nil means
	// false, as in v3.
	ForceSlash *bool
}

// StripPrefixRegex removes the first match at the begin of the path.
type StripPrefixRegex struct {
	Regex []string `regexp:"true"`
}

// Expressions returns the regular expressions of the middleware.
func (m *Middleware) Expressions() (all []string) {
	Texts(m, "regexp", func(t Text) { all = append(all, *t.Value) })
	return all
}

// Unused returns a note for each option that is valid and has no effect: what the methods Unused of the fields return.
func (m *Middleware) Unused() (notes []string) {
	for _, v := range reflect.ValueOf(m).Elem().Fields() {
		if u, ok := v.Interface().(interface{ Unused() []string }); ok && !v.IsNil() {
			notes = append(notes, u.Unused()...)
		}
	}
	return notes
}
