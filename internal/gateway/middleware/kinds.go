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
	}
}
