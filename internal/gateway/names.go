package gateway

import (
	"crypto/tls"
	"fairlead/internal/gateway/hosttls"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
	"strings"
)

// tlsNames are the certificates and options by the name that a client asks for.
type tlsNames struct {
	certificates map[string]*tls.Certificate
	// fallback is for names that no certificate has.
	fallback *tls.Certificate
	// challenges answer authorities, by name.
	challenges map[string]*tls.Config
	options    hosttls.Options
	// hosts says which of the options a host has.
	hosts hosttls.Hosts
}

func newTLSNames() *tlsNames {
	return &tlsNames{certificates: map[string]*tls.Certificate{},
		options: hosttls.Options{Configs: map[string]*tls.Config{}, SNIStrict: map[string]bool{}}}
}

// certificate returns the certificate for the name.
func (n *tlsNames) certificate(name string) *tls.Certificate {
	name = rule.CanonicalHost(name)
	if c := n.certificates[name]; c != nil {
		return c
	}
	if _, parent, ok := strings.Cut(name, "."); ok {
		if c := n.certificates["*."+parent]; c != nil {
			return c
		}
	}
	return nil
}

// challenge returns the configuration for a connection of an authority that validates the
// name (RFC 8737, 3), nil for all others.
func (n *tlsNames) challenge(hello *tls.ClientHelloInfo) *tls.Config {
	if len(n.challenges) == 0 || len(hello.SupportedProtos) != 1 ||
		hello.SupportedProtos[0] != tlsconfig.ChallengeProtocol {
		return nil
	}
	return n.challenges[strings.TrimSuffix(strings.ToLower(hello.ServerName), ".")]
}

// holds reports whether a connection satisfies the TLS options that its server name has now: it may be older than
// they are.
func (n *tlsNames) holds(entry string, c *tls.ConnectionState) bool {
	options := n.options.Configs[n.hosts.Of(entry, c.ServerName)]
	return options != nil && tlsconfig.Holds(options, c)
}

// refuses reports whether the entry point refuses handshakes for the name.
func (n *tlsNames) refuses(entry gateway.EntryPoint, name string) bool {
	return entry.SNIStrict && n.certificate(name) == nil
}
