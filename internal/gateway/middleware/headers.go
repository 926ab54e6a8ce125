package middleware

import (
	"net/http"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

// headers sets headers of requests and responses.
type headers struct {
	*gateway.Headers
	cors     *cors
	security *security
}

// newHeaders sets and deletes headers, answers CORS preflights, sets security headers,
// and has v2's redirection to HTTPS. Custom headers replace security headers. Responses
// are wrapped only if a header of responses is configured.
func newHeaders(_ *builder, v *gateway.Headers) (Func, error) {
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
			if err := checkHeader(name, value); err != nil {
				return nil, err
			}
		}
	}
	wrap := h.cors != nil || h.security.hasResponseHeaders() || len(v.CustomResponseHeaders) > 0
	if !wrap && len(v.CustomRequestHeaders) == 0 && !h.security.checksRequests() {
		return nil, errNoOption
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
	out := &headWriter{ResponseWriter: w, before: func(int) {
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
		out.finish()
	}
}

// changeRequest sets the custom headers of a request. An empty value deletes the header;
// X-Forwarded-For becomes nil instead, so that the proxy does not add it again.
func (h *headers) changeRequest(r *http.Request) {
	for name, value := range h.CustomRequestHeaders {
		switch name = http.CanonicalHeaderKey(name); {
		case value == "" && name == headerForwardedFor:
			r.Header[name] = nil
		case value == "":
			r.Header.Del(name)
			protect(r.Header, name)
		case name == "Host":
			r.Host = value
		default:
			setTrusted(r.Header, name, value)
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

// containsFold returns whether a list has a text, in any case.
func containsFold(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, text) })
}
