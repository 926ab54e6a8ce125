package gateway

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// TLS has certificates and the options of connections.
type TLS struct {
	Certificates []Certificate
	// Options are by qualified name; "default" applies where a router names none.
	Options map[string]*TLSOptions
	// Stores has one store, "default".
	Stores map[string]*Store
}

// Certificate is a certificate with its key. The values are file names or PEM texts.
type Certificate struct {
	CertFile string `file:"text"`
	KeyFile  string `file:"text" secret:"key"`
	Stores   []string
}

// Store has the certificate for names that no other has.
type Store struct {
	DefaultCertificate   *Certificate
	DefaultGeneratedCert *GeneratedCert
}

// GeneratedCert is a default certificate from a resolver.
type GeneratedCert struct {
	Resolver string
	Domain   *Domain
}

// Validate returns an error for a generated certificate without a name. One without a domain is never obtained.
func (s *Store) Validate() error {
	if g := s.DefaultGeneratedCert; g != nil && g.Domain != nil && len(g.Domain.Names()) == 0 {
		return errors.New("defaultGeneratedCert.domain has no name: set main, such as example.com")
	}
	return nil
}

// Names returns the names of a certificate for the domain, without those that are empty: in lower case, each once, the
// main one first.
func (d Domain) Names() (names []string) {
	for _, name := range append([]string{d.Main}, d.SANs...) {
		name = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), ".")
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// TLSOptions are the parameters of connections.
type TLSOptions struct {
	// MinVersion is by default VersionTLS12.
	MinVersion, MaxVersion   string
	CipherSuites             []string
	CurvePreferences         []string
	ClientAuth               ClientAuth
	SNIStrict                bool
	PreferServerCipherSuites bool
	// ALPNProtocols are by default h2, http/1.1 and acme-tls/1.
	ALPNProtocols         []string
	DisableSessionTickets bool
}

// ClientAuth says which certificates of clients are asked for and accepted.
type ClientAuth struct {
	CAFiles        []string `file:"text"`
	ClientAuthType string
}

// ServersTransport says how the gateway connects to HTTP servers.
type ServersTransport struct {
	ServerName          string
	InsecureSkipVerify  bool
	RootCAs             []string `file:"text"`
	Certificates        []Certificate
	MaxIdleConnsPerHost int
	ForwardingTimeouts  ForwardingTimeouts
	DisableHTTP2        bool
	PeerCertURI         string
	MinVersion          string
	MaxVersion          string
	CipherSuites        []string
}

// ForwardingTimeouts are those of connections to servers. DialTimeout is by default
// 30 s, IdleConnTimeout 90 s; ResponseHeaderTimeout has no limit.
type ForwardingTimeouts struct {
	DialTimeout, ResponseHeaderTimeout, IdleConnTimeout time.Duration
	// ReadIdleTimeout is how long a server of HTTP/2 may be silent until the gateway sends a ping. 0 means no
	// pings. Without an answer within PingTimeout, by default 15 s, the connection ends.
	ReadIdleTimeout, PingTimeout time.Duration
}

// TCPServersTransport says how the gateway connects to TCP servers.
type TCPServersTransport struct {
	// DialTimeout is by default 30 s, DialKeepAlive 15 s.
	DialTimeout, DialKeepAlive time.Duration
	// TerminationDelay is how long one direction stays open after the other has ended,
	// by default 100 ms.
	TerminationDelay time.Duration
	ProxyProtocol    *ProxyProtocol
	TLS              *ServerTLS
}

// ServerTLS is TLS to a TCP server.
type ServerTLS struct {
	ServerName         string
	InsecureSkipVerify bool
	RootCAs            []string `file:"text"`
	Certificates       []Certificate
	PeerCertURI        string
}
