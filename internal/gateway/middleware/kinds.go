package middleware

import "fairlead/internal/model/gateway"

// kinds has the constructor of each field of gateway.Middleware.
var kinds []kind

// init fills kinds: the constructor of chains uses it, which is a cycle for a variable's
// initial value.
func init() {
	kinds = []kind{
		of(func(m *gateway.Middleware) *gateway.BasicAuth { return m.BasicAuth }, newBasicAuth),
		of(func(m *gateway.Middleware) *gateway.Headers { return m.Headers }, newHeaders),
		of(func(m *gateway.Middleware) *gateway.RedirectScheme { return m.RedirectScheme }, newRedirectScheme),
		of(func(m *gateway.Middleware) *gateway.StripPrefix { return m.StripPrefix }, newStripPrefix),
		of(func(m *gateway.Middleware) *gateway.Compress { return m.Compress }, newCompress),
		of(func(m *gateway.Middleware) *gateway.RedirectRegex { return m.RedirectRegex }, newRedirectRegex),
		of(func(m *gateway.Middleware) *gateway.ForwardAuth { return m.ForwardAuth }, newForwardAuth),
		of(func(m *gateway.Middleware) *gateway.IPAllowList { return m.IPAllowList }, newIPAllowList),
		of(func(m *gateway.Middleware) *gateway.IPAllowList { return m.IPWhiteList }, newIPAllowList),
		of(func(m *gateway.Middleware) *gateway.Chain { return m.Chain }, newChain),
		of(func(m *gateway.Middleware) *gateway.Buffering { return m.Buffering }, newBuffering),
		of(func(m *gateway.Middleware) *gateway.Errors { return m.Errors }, newErrors),
		of(func(m *gateway.Middleware) *gateway.AddPrefix { return m.AddPrefix }, newAddPrefix),
		of(func(m *gateway.Middleware) *gateway.ReplacePathRegex { return m.ReplacePathRegex }, newReplacePathRegex),
		of(func(m *gateway.Middleware) *gateway.ContentType { return m.ContentType }, newContentType),
		of(func(m *gateway.Middleware) *gateway.RateLimit { return m.RateLimit }, newRateLimit),
		of(func(m *gateway.Middleware) *gateway.InFlightReq { return m.InFlightReq }, newInFlightReq),
		of(func(m *gateway.Middleware) *gateway.ReplacePath { return m.ReplacePath }, newReplacePath),
		of(func(m *gateway.Middleware) *gateway.StripPrefixRegex { return m.StripPrefixRegex }, newStripPrefixRegex),
		of(func(m *gateway.Middleware) *gateway.Retry { return m.Retry }, newRetry),
		of(func(m *gateway.Middleware) *gateway.DigestAuth { return m.DigestAuth }, newDigestAuth),
		of(func(m *gateway.Middleware) *gateway.PassTLSClientCert { return m.PassTLSClientCert }, newPassTLSClientCert),
		of(func(m *gateway.Middleware) *gateway.EncodedCharacters { return m.EncodedCharacters }, newEncodedCharacters),
		of(func(m *gateway.Middleware) *gateway.GRPCWeb { return m.GRPCWeb }, newGRPCWeb),
		of(func(m *gateway.Middleware) *gateway.CircuitBreaker { return m.CircuitBreaker }, newCircuitBreaker),
		newPlugin,
	}
}
