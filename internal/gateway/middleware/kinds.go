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
	}
}
