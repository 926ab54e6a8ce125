package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// forwardedHeaders are what a proxy says about the client of a request. From a peer
// that is not trusted, they are removed.
var forwardedHeaders = []string{
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto", "X-Forwarded-Server",
	"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Prefix", "X-Forwarded-Tls-Client-Cert",
	"X-Forwarded-Tls-Client-Cert-Info", "X-Real-Ip", "X-Replaced-Path", "Forwarded",
}

// forwarding sets the headers about the client at one entry point.
type forwarding struct {
	trusted  []netip.Prefix
	insecure bool
	port     string
	server   string
}

func newForwarding(trusted []string, insecure bool, port string) (forwarding, error) {
	f := forwarding{insecure: insecure, port: port}
	f.server, _ = os.Hostname() // only a note for the servers
	for _, text := range trusted {
		p, err := prefix(text)
		if err != nil {
			return f, err
		}
		f.trusted = append(f.trusted, p)
	}
	return f, nil
}

// prefix parses a prefix or an address.
func prefix(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return netip.ParsePrefix(text)
	}
	a, err := netip.ParseAddr(text)
	return netip.PrefixFrom(a, a.BitLen()), err
}

// trusts reports whether the peer may set the headers.
func (f *forwarding) trusts(peer netip.Addr) bool {
	return f.insecure || slices.ContainsFunc(f.trusted, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// apply prepares the request's headers for the servers.
func (f *forwarding) apply(r *http.Request, peer netip.Addr) {
	h := r.Header
	if !f.trusts(peer) {
		removeForwarded(h)
	}
	removeNamedByConnection(h)
	client := peer.String()
	setIfMissing(h, "X-Real-Ip", client)
	setIfMissing(h, "X-Forwarded-Proto", scheme(r))
	setIfMissing(h, "X-Forwarded-Port", f.portOf(r))
	setIfMissing(h, "X-Forwarded-Host", r.Host)
	setIfMissing(h, "X-Forwarded-Server", f.server)
	if before := h["X-Forwarded-For"]; len(before) > 0 {
		client = strings.Join(before, ", ") + ", " + client
	}
	h["X-Forwarded-For"] = []string{client}
}

// removeForwarded removes the headers, and names that servers may take for them
// because they replace "_" by "-", as CGI does (CVE-2026-39858).
func removeForwarded(h http.Header) {
	for name := range h {
		if (strings.HasPrefix(name, "X") || strings.HasPrefix(name, "F")) && isForwarded(name) {
			delete(h, name)
		}
	}
}

func isForwarded(name string) bool {
	if strings.Contains(name, "_") {
		name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
	}
	return slices.Contains(forwardedHeaders, name)
}

// removeNamedByConnection ignores headers about the client that a Connection header
// names: a client must not be able to remove them on the way to the server.
func removeNamedByConnection(h http.Header) {
	values := h["Connection"]
	for i, v := range values {
		if !strings.Contains(v, ",") && !strings.HasPrefix(strings.ToLower(v), "x") {
			continue
		}
		kept := slices.DeleteFunc(strings.Split(v, ","), func(token string) bool {
			return isForwarded(http.CanonicalHeaderKey(strings.TrimSpace(token)))
		})
		values[i] = strings.Join(kept, ",")
	}
}

func setIfMissing(h http.Header, name, value string) {
	if len(h[name]) == 0 {
		h[name] = []string{value}
	}
}

// scheme returns that of the client's URL. WebSocket has its own schemes.
func scheme(r *http.Request) string {
	name := "http"
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		name = "ws"
	}
	if r.TLS != nil {
		name += "s"
	}
	return name
}

func (f *forwarding) portOf(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return port
	}
	switch r.Header.Get("X-Forwarded-Proto") {
	case "https", "wss":
		return "443"
	case "http", "ws":
		return "80"
	}
	return f.port
}
