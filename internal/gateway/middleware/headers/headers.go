// Package headers has the middlewares that set headers: headers with CORS and security headers, passTLSClientCert.
package headers

import (
	"net/http"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// headers sets headers of requests and responses.
type headers struct {
	*gateway.Headers
	cors     *cors
	security *security
}

// NewHeaders sets and deletes headers, answers CORS preflights, sets security headers,
// and has v2's redirection to HTTPS. Custom headers replace security headers. Responses
// are wrapped only if a header of responses is configured.
func NewHeaders(_ *base.Builder, v *gateway.Headers) (base.Func, error) {
	h := &headers{Headers: v}
	var err error
	if h.cors, err = newCORS(v); err != nil {
		return nil, err
	}
	if h.security, err = newSecurity(v); err != nil {
		return nil, err
	}
	for _, custom := range []map[string]string{v.CustomRequestHeaders, v.CustomResponseHeaders} {
		for name, value := range custom {
			if err := base.CheckHeader(name, value); err != nil {
				return nil, err
			}
		}
	}
	wrap := h.cors != nil || h.security.hasResponseHeaders() || len(v.CustomResponseHeaders) > 0
	if !wrap && len(v.CustomRequestHeaders) == 0 && !h.security.checksRequests() {
		return nil, base.ErrNoOption
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.serve(w, r, next, wrap)
		})
	}, nil
}

func (h *headers) serve(w http.ResponseWriter, r *http.Request, next http.Handler, wrap bool) {
	if h.cors != nil && h.cors.preflight(w, r) {
		return
	}
	h.changeRequest(r)
	if !wrap {
		if h.security.admit(w, r) {
			next.ServeHTTP(w, r)
		}
		return
	}
	origin, secure := r.Header.Get("Origin"), h.security.isHTTPS(r)
	admitted := false
	out := &base.HeadWriter{ResponseWriter: w, Before: func(int) {
		if admitted {
			h.security.apply(w.Header(), secure)
		}
		h.changeResponse(w.Header())
		if h.cors != nil {
			h.cors.apply(w.Header(), origin)
		}
	}}
	if admitted = h.security.admit(out, r); admitted {
		next.ServeHTTP(out, r)
		out.Finish()
	}
}

// changeRequest sets the custom headers of a request. An empty value deletes the header;
// X-Forwarded-For becomes nil instead, so that the proxy does not add it again.
func (h *headers) changeRequest(r *http.Request) {
	for name, value := range h.CustomRequestHeaders {
		switch name = http.CanonicalHeaderKey(name); {
		case value == "" && name == base.HeaderForwardedFor:
			r.Header[name] = nil
		case value == "":
			r.Header.Del(name)
			base.Protect(r.Header, name)
		case name == "Host":
			r.Host = value
		default:
			base.SetTrusted(r.Header, name, value)
		}
	}
}

func (h *headers) changeResponse(header http.Header) {
	for name, value := range h.CustomResponseHeaders {
		if value == "" {
			header.Del(name)
		} else {
			header.Set(name, value)
		}
	}
}
