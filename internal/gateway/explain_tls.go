package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// shownOf describes a certificate.
func shownOf(c *tls.Certificate) (s ShownCertificate, err error) {
	leaf := c.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return s, err
		}
	}
	return shown.Of(leaf, tlsconfig.Names(&tls.Certificate{Leaf: leaf})), nil
}

// shownCertificate returns the certificate that a client gets which asks an entry point for
// a name, and why it does not accept it. It is nil if the handshake fails.
func (s *snapshot) shownCertificate(entry gateway.EntryPoint, name string) (*ShownCertificate, []string) {
	if s.tls.refuses(entry, name) {
		return nil, []string{"the handshake fails: " + errNoCertificate.Error()}
	}
	options := s.tls.hosts.Of(entry.Name, name)
	config := s.tls.options.Configs[options]
	if config == nil {
		return nil, []string{fmt.Sprintf("the handshake fails: TLS options %s cannot be used", options)}
	}
	pair, err := config.GetCertificate(&tls.ClientHelloInfo{ServerName: name})
	if err != nil {
		return nil, []string{"the handshake fails: " + err.Error()}
	}
	c, err := shownOf(pair)
	if err != nil {
		return nil, []string{"the certificate cannot be read: " + err.Error()}
	}
	c.Default = pair == s.tls.fallback
	return &c, c.Problems(name, s.whyNone(name), time.Now())
}

// misdirected says why the router answers 421 to a request for the host at the entry point.
func (n *tlsNames) misdirected(entry, host string, r *route.Router) []string {
	if n.hosts.Admits(entry, host, r.Options, r.Hostless) {
		return nil
	}
	return []string{fmt.Sprintf("the answer is 421: connections for %s have the TLS options %s, which are not as strict as %s "+
		"of router %s", host, n.hosts.Of(entry, host), r.Options, r.Name)}
}

// whyNone says why a resolver has no certificate for the name, empty if none tries.
func (s *snapshot) whyNone(name string) string {
	for _, c := range s.config.ACME.Certificates {
		if slices.Contains(c.Names, strings.ToLower(name)) {
			return "; " + c.String()
		}
	}
	return ""
}

// withACME adds the states of certificates from resolvers.
func withACME(all []ShownCertificate, states []gateway.CertificateState) []ShownCertificate {
	for _, state := range states {
		own := slices.IndexFunc(all, func(c ShownCertificate) bool {
			return c.ACME == nil && !state.NotAfter.IsZero() && c.NotAfter.Equal(state.NotAfter) &&
				!slices.ContainsFunc(state.Names, func(name string) bool { return !slices.Contains(c.Names, name) })
		})
		if own < 0 {
			all = append(all, ShownCertificate{Names: state.Names, NotAfter: state.NotAfter})
			own = len(all) - 1
		}
		all[own].ACME = &state
	}
	return all
}

// shownCertificates returns all certificates that are in use or that resolvers try to obtain,
// by their first names, and the default one last.
func (s *snapshot) shownCertificates() []ShownCertificate {
	all := []ShownCertificate{}
	seen := map[*tls.Certificate]bool{s.tls.fallback: true}
	for _, name := range slices.Sorted(maps.Keys(s.tls.certificates)) {
		pair := s.tls.certificates[name]
		if c, err := shownOf(pair); err == nil && !seen[pair] {
			all = append(all, c)
		}
		seen[pair] = true
	}
	all = withACME(all, s.config.ACME.Certificates)
	slices.SortFunc(all, func(a, b ShownCertificate) int { return slices.Compare(a.Names, b.Names) })
	if c, err := shownOf(s.tls.fallback); err == nil {
		c.Default = true
		all = append(all, c)
	}
	return all
}
