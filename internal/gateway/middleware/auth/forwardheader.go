package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// fromCGI converts the aliases of a header's name to the name.
var fromCGI = strings.NewReplacer("_", "-", ".", "-")

// questionHeader returns the header of the request to the other server: the client's, or
// those of its headers that are in only, and what describes the client's request. Without
// trust, the X-Forwarded headers of the request, also X-Forwarded-Prefix and the aliases,
// are left out (GHSA-6384-m2mw-rf54). If trust is nil, those stay that do not describe the URL: the
// entry point or a middleware has set them, or a proxy that the entry point trusts.
func questionHeader(r *http.Request, trust *bool, only []string) http.Header {
	trusts := trust != nil && *trust
	h := r.Header.Clone()
	base.RemoveHopHeaders(h)
	h.Del("Content-Length")
	for name := range h {
		switch forwarded := isForwarded(name); {
		case forwarded && !trusts && (trust != nil || !slices.Contains(beyondURL, name)),
			len(only) > 0 && !base.ContainsFold(only, name):
			delete(h, name)
		}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // So that net/http does not add its own.
	}
	if address := base.PeerAddress(r); address.IsValid() {
		before := slices.Clone(h[base.HeaderForwardedFor])
		h.Set(base.HeaderForwardedFor, strings.Join(append(before, address.String()), ", "))
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	setMissing(h, base.HeaderForwardedProto, scheme)
	setMissing(h, "X-Forwarded-Method", r.Method)
	setMissing(h, "X-Forwarded-Host", r.Host)
	setMissing(h, "X-Forwarded-Uri", r.URL.RequestURI())
	if _, port := base.SplitHost(r.Host); port != "" {
		setMissing(h, "X-Forwarded-Port", port)
	}
	setMissing(h, "X-Forwarded-Port", portOfScheme(h.Get(base.HeaderForwardedProto)))
	return h
}

// portOfScheme returns the default port.
func portOfScheme(scheme string) string {
	if scheme == "https" || scheme == "wss" {
		return "443"
	}
	return "80"
}

// beyondURL are the headers about the client's connection and this host.
var beyondURL = []string{"X-Real-Ip", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Server",
	"X-Forwarded-Tls-Client-Cert",
	"X-Forwarded-Tls-Client-Cert-Info"}

// isForwarded returns whether a header, or an alias of it, says how a proxy received the
// request.
func isForwarded(name string) bool {
	name = http.CanonicalHeaderKey(fromCGI.Replace(name))
	return strings.HasPrefix(name, "X-Forwarded-") || name == "X-Real-Ip"
}

func setMissing(h http.Header, name, value string) {
	if _, ok := h[name]; !ok {
		h.Set(name, value)
	}
}

// defaultTransport is the transport of all middlewares without TLS settings.
var defaultTransport = newTransport(nil)

func newTransport(config *tls.Config) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	transport.MaxIdleConnsPerHost = 64
	transport.DisableCompression = true
	return transport
}

// clientTransport returns the transport for TLS settings.
func clientTransport(v *gateway.ClientTLS) (http.RoundTripper, error) {
	if v == nil {
		return defaultTransport, nil
	}
	config := &tls.Config{InsecureSkipVerify: v.InsecureSkipVerify}
	if v.CA != "" {
		text, err := fileOrText(v.CA)
		if err != nil {
			return nil, fmt.Errorf("read tls.ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("read tls.ca: it has no certificate in PEM format")
		}
	}
	if v.Cert == "" && v.Key == "" {
		return newTransport(config), nil
	}
	cert, err := fileOrText(v.Cert)
	if err != nil {
		return nil, fmt.Errorf("read tls.cert: %w", err)
	}
	key, err := fileOrText(v.Key)
	if err != nil {
		return nil, fmt.Errorf("read tls.key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read tls.cert and tls.key: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return newTransport(config), nil
}

// fileOrText returns a PEM text, or the content of the file with that name.
func fileOrText(value string) ([]byte, error) {
	if strings.Contains(value, "-----BEGIN") {
		return []byte(value), nil
	}
	return os.ReadFile(value)
}
