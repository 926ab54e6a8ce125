package snapshot

import (
	"crypto/tls"
	"strings"

	"fairlead/internal/gateway/hosttls"
	"fairlead/internal/gateway/rule"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// Names are the certificates and options by the name that a client asks for.
type Names struct {
	Certificates map[string]*tls.Certificate
	// fallback is for names that no certificate has.
	Fallback *tls.Certificate
	// challenges answer authorities, by name.
	Challenges map[string]*tls.Config
	Options    hosttls.Options
	// hosts says which of the options a host has.
	Hosts hosttls.Hosts
}

// NewNames returns the names of a configuration without certificates and options.
func NewNames() *Names {
	return &Names{Certificates: map[string]*tls.Certificate{},
		Options: hosttls.Options{Configs: map[string]*tls.Config{}, SNIStrict: map[string]bool{}}}
}

func (n *Names) certificate(name string) *tls.Certificate {
	name = rule.CanonicalHost(name)
	if c := n.Certificates[name]; c != nil {
		return c
	}
	if _, parent, ok := strings.Cut(name, "."); ok {
		if c := n.Certificates["*."+parent]; c != nil {
			return c
		}
	}
	return nil
}

// challenge returns the configuration for a connection of an authority that validates the
// name (RFC 8737, 3), nil for all others.
func (n *Names) challenge(hello *tls.ClientHelloInfo) *tls.Config {
	if len(n.Challenges) == 0 || len(hello.SupportedProtos) != 1 ||
		hello.SupportedProtos[0] != tlsconfig.ChallengeProtocol {
		return nil
	}
	return n.Challenges[strings.TrimSuffix(strings.ToLower(hello.ServerName), ".")]
}

// Holds reports whether a connection satisfies the TLS options that its server name has now: it may be older than
// they are.
func (n *Names) Holds(entry string, c *tls.ConnectionState) bool {
	options := n.Options.Configs[n.Hosts.Of(entry, c.ServerName)]
	return options != nil && tlsconfig.Holds(options, c)
}

// Refuses reports whether the entry point refuses handshakes for the name.
func (n *Names) Refuses(entry gateway.EntryPoint, name string) bool {
	return entry.SNIStrict && n.certificate(name) == nil
}
