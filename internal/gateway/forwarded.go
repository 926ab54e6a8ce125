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
	removeConnection(h)
	setIfMissing(h, "X-Real-Ip", peer.String())
	setIfMissing(h, "X-Forwarded-Proto", scheme(r))
	setIfMissing(h, "X-Forwarded-Port", f.portOf(r))
	setIfMissing(h, "X-Forwarded-Host", r.Host)
	setIfMissing(h, "X-Forwarded-Server", f.server)
}

// forwardedFor has the addresses of the client and of the proxies before this one.
const forwardedFor = "X-Forwarded-For"

// appendClient appends the peer's address to X-Forwarded-For. Middlewares see the header
// without it, as in Traefik. A header that is present without a value stays away.
func appendClient(r *http.Request) {
	before, ok := r.Header[forwardedFor]
	if ok && before == nil {
		return
	}
	client := addressOf(r.RemoteAddr).String()
	if len(before) > 0 {
		client = strings.Join(before, ", ") + ", " + client
	}
	r.Header[forwardedFor] = []string{client}
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

// removeConnection removes the fields that the client's Connection header names (RFC
// 9110 7.6.1), and of that header all but an upgrade. A client must not name fields
// that the gateway or a middleware sets later, such as the user's name: they would not
// reach the server. Headers about the client stay also if it names them.
func removeConnection(h http.Header) {
	values := h["Connection"]
	if len(values) == 0 {
		return
	}
	upgrade := false
	for token := range strings.SplitSeq(strings.Join(values, ","), ",") {
		switch name := http.CanonicalHeaderKey(strings.TrimSpace(token)); {
		case name == "Upgrade":
			upgrade = true
		case name != "" && !isForwarded(name):
			delete(h, name)
		}
	}
	if delete(h, "Connection"); upgrade {
		h["Connection"] = []string{"Upgrade"}
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
