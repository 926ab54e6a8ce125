package headers

import (
	"fmt"
	"net/http"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// security has the security headers of responses, the check of hosts, and the
// redirection to HTTPS.
type security struct {
	*gateway.Headers
	// always are sent with each response; https with responses over HTTPS only.
	always, https map[string]string
}

func newSecurity(v *gateway.Headers) (*security, error) {
	s := &security{Headers: v, https: map[string]string{}, always: map[string]string{
		"X-Frame-Options":                     orIf(v.CustomFrameOptionsValue, v.FrameDeny, "DENY"),
		"X-Content-Type-Options":              orIf("", v.ContentTypeNosniff, "nosniff"),
		"X-Xss-Protection":                    orIf(v.CustomBrowserXSSValue, v.BrowserXSSFilter, "1; mode=block"),
		"Content-Security-Policy":             v.ContentSecurityPolicy,
		"Content-Security-Policy-Report-Only": v.ContentSecurityPolicyReportOnly,
		"Referrer-Policy":                     v.ReferrerPolicy,
		"Feature-Policy":                      v.FeaturePolicy,
		"Permissions-Policy":                  v.PermissionsPolicy,
	}}
	if !v.IsDevelopment {
		s.https["Public-Key-Pins"] = v.PublicKey
		if v.ForceSTSHeader {
			s.always["Strict-Transport-Security"] = transportSecurity(v)
		} else {
			s.https["Strict-Transport-Security"] = transportSecurity(v)
		}
	}
	for _, set := range []map[string]string{s.always, s.https} {
		for name, value := range set {
			if value == "" {
				delete(set, name)
			} else if err := base.CheckHeader(name, value); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// orIf returns the value if it is set, or other if the condition is true.
func orIf(value string, condition bool, other string) string {
	if value == "" && condition {
		return other
	}
	return value
}

// transportSecurity returns the value of Strict-Transport-Security (RFC 6797).
func transportSecurity(v *gateway.Headers) string {
	if v.STSSeconds == 0 {
		return ""
	}
	value := fmt.Sprintf("max-age=%d", v.STSSeconds)
	if v.STSIncludeSubdomains {
		value += "; includeSubDomains"
	}
	if v.STSPreload {
		value += "; preload"
	}
	return value
}

func (s *security) hasResponseHeaders() bool { return len(s.always)+len(s.https) > 0 }

func (s *security) checksRequests() bool {
	return len(s.AllowedHosts) > 0 || s.SSLRedirect || s.SSLForceHost
}

// apply sets the headers of a response.
func (s *security) apply(h http.Header, secure bool) {
	for name, value := range s.always {
		h.Set(name, value)
	}
	if secure {
		for name, value := range s.https {
			h.Set(name, value)
		}
	}
}

// isHTTPS returns whether the client uses HTTPS: with the gateway, or with a proxy before
// it that sends one of the configured headers.
func (s *security) isHTTPS(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	for name, value := range s.SSLProxyHeaders {
		if r.Header.Get(name) == value {
			return true
		}
	}
	return false
}

// admit answers requests for other hosts, with 500 as Traefik does, and those that must
// use HTTPS or another host. It returns true for the rest.
func (s *security) admit(w http.ResponseWriter, r *http.Request) bool {
	if !s.checksRequests() || s.IsDevelopment {
		return true
	}
	host := s.host(r)
	if len(s.AllowedHosts) > 0 && !base.ContainsFold(s.AllowedHosts, host) {
		http.Error(w, "Bad Host", http.StatusInternalServerError)
		return false
	}
	target := orIf(s.SSLHost, true, host)
	if s.SSLRedirect && !s.isHTTPS(r) || s.SSLForceHost && target != host {
		base.RedirectWith(w, base.URLOf(r, "https", target), s.redirectStatus())
		return false
	}
	return true
}

// host returns the name that the client uses for this server.
func (s *security) host(r *http.Request) string {
	for _, name := range s.HostsProxyHeaders {
		if host := r.Header.Get(name); host != "" {
			return host
		}
	}
	return r.Host
}

func (s *security) redirectStatus() int {
	if s.SSLTemporaryRedirect {
		return http.StatusTemporaryRedirect
	}
	return http.StatusMovedPermanently
}
