package middleware

import (
	"net/http"
	"time"

	"fairlead/internal/gateway/middleware/auth"
	"fairlead/internal/gateway/middleware/body"
	"fairlead/internal/gateway/middleware/failure"
	"fairlead/internal/gateway/middleware/headers"
	"fairlead/internal/gateway/middleware/limit"
	"fairlead/internal/gateway/middleware/rewrite"
	"fairlead/internal/model/gateway"
)

// New returns the middleware of a value. It fails if the value has no field, more than
// one, or an invalid one; the error names the middleware. The caller builds one per
// router: a middleware with a state, such as a rate, does not share it with another
// router. Deps.Last and Deps.Next carry states from one configuration to the next.
func New(name string, value *gateway.Middleware, deps Deps) (func(http.Handler) http.Handler, error) {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return (&builder{Deps: deps, kinds: kinds}).build(name, value)
}

// kinds has the constructor of each field of gateway.Middleware.
var kinds = []kind{
	of(func(m *gateway.Middleware) *gateway.BasicAuth { return m.BasicAuth }, auth.NewBasicAuth),
	of(func(m *gateway.Middleware) *gateway.Headers { return m.Headers }, headers.NewHeaders),
	of(func(m *gateway.Middleware) *gateway.RedirectScheme { return m.RedirectScheme },
		rewrite.NewRedirectScheme),
	of(func(m *gateway.Middleware) *gateway.StripPrefix { return m.StripPrefix }, rewrite.NewStripPrefix),
	of(func(m *gateway.Middleware) *gateway.Compress { return m.Compress }, body.NewCompress),
	of(func(m *gateway.Middleware) *gateway.RedirectRegex { return m.RedirectRegex },
		rewrite.NewRedirectRegex),
	of(func(m *gateway.Middleware) *gateway.ForwardAuth { return m.ForwardAuth }, auth.NewForwardAuth),
	of(func(m *gateway.Middleware) *gateway.IPAllowList { return m.IPAllowList }, limit.NewIPAllowList),
	of(func(m *gateway.Middleware) *gateway.IPAllowList { return m.IPWhiteList }, limit.NewIPAllowList),
	newChain,
	of(func(m *gateway.Middleware) *gateway.Buffering { return m.Buffering }, body.NewBuffering),
	of(func(m *gateway.Middleware) *gateway.Errors { return m.Errors }, failure.NewErrors),
	of(func(m *gateway.Middleware) *gateway.AddPrefix { return m.AddPrefix }, rewrite.NewAddPrefix),
	of(func(m *gateway.Middleware) *gateway.ReplacePathRegex { return m.ReplacePathRegex },
		rewrite.NewReplacePathRegex),
	of(func(m *gateway.Middleware) *gateway.ContentType { return m.ContentType }, body.NewContentType),
	of(func(m *gateway.Middleware) *gateway.RateLimit { return m.RateLimit }, limit.NewRateLimit),
	of(func(m *gateway.Middleware) *gateway.InFlightReq { return m.InFlightReq }, limit.NewInFlightReq),
	of(func(m *gateway.Middleware) *gateway.ReplacePath { return m.ReplacePath }, rewrite.NewReplacePath),
	of(func(m *gateway.Middleware) *gateway.StripPrefixRegex { return m.StripPrefixRegex },
		rewrite.NewStripPrefixRegex),
	of(func(m *gateway.Middleware) *gateway.Retry { return m.Retry }, failure.NewRetry),
	of(func(m *gateway.Middleware) *gateway.DigestAuth { return m.DigestAuth }, auth.NewDigestAuth),
	of(func(m *gateway.Middleware) *gateway.PassTLSClientCert { return m.PassTLSClientCert },
		headers.NewPassTLSClientCert),
	of(func(m *gateway.Middleware) *gateway.EncodedCharacters { return m.EncodedCharacters },
		rewrite.NewEncodedCharacters),
	of(func(m *gateway.Middleware) *gateway.GRPCWeb { return m.GRPCWeb }, body.NewGRPCWeb),
	of(func(m *gateway.Middleware) *gateway.CircuitBreaker { return m.CircuitBreaker },
		failure.NewCircuitBreaker),
	newPlugin,
}
