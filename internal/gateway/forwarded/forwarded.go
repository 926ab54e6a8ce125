// Package forwarded sets the headers that describe the client of a request to a server, and
// removes those that only a trusted proxy may send.
package forwarded

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Names are the headers in which a proxy describes the client of a request. If the peer is not
// trusted, they are removed, and so are all others that begin with X-Forwarded-: servers and
// authenticating proxies believe, for example, X-Forwarded-User and X-Forwarded-Ssl.
var Names = []string{
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto", "X-Forwarded-Server",
	"X-Forwarded-Uri", "X-Forwarded-Method", "X-Forwarded-Prefix", "X-Forwarded-Tls-Client-Cert",
	"X-Forwarded-Tls-Client-Cert-Info", "X-Real-Ip", "X-Replaced-Path", "Forwarded",
}

// Headers are the headers about the client at one entry point.
type Headers struct {
	trusted    []netip.Prefix
	insecure   bool
	port       string
	server     string
	connection []string
	notAppend  bool
}

// Settings are those of an entry point.
type Settings struct {
	// Trusted are prefixes and addresses of proxies. If Insecure, all peers are trusted.
	Trusted  []string
	Insecure bool
	// Port is that of the entry point.
	Port string
	// Connection are headers that stay until the request is sent to a server if the client's Connection header
	// names them.
	Connection []string
	// NotAppend leaves the client's address out of X-Forwarded-For.
	NotAppend bool
}

// New returns the headers of an entry point.
func New(s Settings) (Headers, error) {
	f := Headers{insecure: s.Insecure, port: s.Port, notAppend: s.NotAppend}
	f.server, _ = os.Hostname() // only a note for the servers
	for _, name := range s.Connection {
		f.connection = append(f.connection, http.CanonicalHeaderKey(name))
	}
	for _, text := range s.Trusted {
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

// Trusts reports whether the peer may set the headers.
func (f *Headers) Trusts(peer netip.Addr) bool {
	return f.insecure || slices.ContainsFunc(f.trusted, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// Apply prepares the request's headers for the servers. It returns the request with them.
func (f *Headers) Apply(r *http.Request, peer netip.Addr) *http.Request {
	h := r.Header
	if !f.Trusts(peer) {
		removeForwarded(h)
	}
	removeConnection(h, f.connection)
	m := missing{h, make([]string, 0, 5)}
	m.set("X-Real-Ip", peer.String())
	m.set("X-Forwarded-Proto", Scheme(r))
	m.set("X-Forwarded-Port", f.portOf(r))
	m.set("X-Forwarded-Host", r.Host)
	m.replace("X-Forwarded-Server", f.server) // also that of a trusted proxy, as in Traefik
	if f.notAppend {
		r = r.WithContext(context.WithValue(r.Context(), notAppend{}, true))
	}
	return r
}

// Peer returns the address of a peer from that of a request. It is invalid if there is none.
func Peer(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// notAppend is the key of requests whose X-Forwarded-For stays as it is.
type notAppend struct{}

// For has the addresses of the client and of the proxies before this one.
const For = "X-Forwarded-For"

// AppendClient appends the client's address to X-Forwarded-For. Middlewares see the header
// without it, as in Traefik. A header that is present without a value stays away.
func AppendClient(r *http.Request, client netip.Addr) {
	before, ok := r.Header[For]
	if ok && before == nil || r.Context().Value(notAppend{}) != nil {
		return
	}
	value := client.String()
	if len(before) > 0 {
		value = strings.Join(before, ", ") + ", " + value
	}
	r.Header[For] = []string{value}
}

// removeForwarded removes the headers, and names that servers may take for them
// because they replace "_" or "." by "-", as CGI and PHP do (CVE-2026-39858).
func removeForwarded(h http.Header) {
	for name := range h {
		if (strings.HasPrefix(name, "X") || strings.HasPrefix(name, "F")) && isForwarded(name) {
			delete(h, name)
		}
	}
}

// aliases converts the aliases of a header's name to the name.
var aliases = strings.NewReplacer("_", "-", ".", "-")

func isForwarded(name string) bool {
	if strings.ContainsAny(name, "_.") {
		name = http.CanonicalHeaderKey(aliases.Replace(name))
	}
	return strings.HasPrefix(name, "X-Forwarded-") || slices.Contains(Names, name)
}

// removeConnection removes the fields that the client's Connection header names (RFC
// 9110 7.6.1), and of that header all but an upgrade. A client must not name fields
// that the gateway or a middleware sets later, such as the user's name: they would not
// reach the server. Headers about the client stay also if it names them. Those in kept
// stay, with their names in Connection, so that the forwarder removes them.
func removeConnection(h http.Header, kept []string) {
	values := h["Connection"]
	if len(values) == 0 {
		return
	}
	var named []string
	for token := range strings.SplitSeq(strings.Join(values, ","), ",") {
		switch name := http.CanonicalHeaderKey(strings.TrimSpace(token)); {
		case name == "Upgrade" || slices.Contains(kept, name) && !isForwarded(name):
			named = append(named, name)
		case name != "" && !isForwarded(name):
			delete(h, name)
		}
	}
	if delete(h, "Connection"); len(named) > 0 {
		h["Connection"] = []string{strings.Join(named, ", ")}
	}
}

// missing sets the headers that a request lacks. Their values share one allocation.
type missing struct {
	h      http.Header
	values []string
}

func (m *missing) set(name, value string) {
	if len(m.h[name]) == 0 {
		m.replace(name, value)
	}
}

func (m *missing) replace(name, value string) {
	m.values = append(m.values, value)
	n := len(m.values)
	m.h[name] = m.values[n-1 : n : n] // a value that is appended later is not the next header's
}

// Scheme returns that of the client's URL. WebSocket has its own schemes.
func Scheme(r *http.Request) string {
	name := "http"
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		name = "ws"
	}
	if r.TLS != nil {
		name += "s"
	}
	return name
}

func (f *Headers) portOf(r *http.Request) string {
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
