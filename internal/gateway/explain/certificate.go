package explain

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
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// shownOf describes a certificate.
func shownOf(c *tls.Certificate) (s shown.Certificate, err error) {
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
func (s Source) shownCertificate(entry gateway.EntryPoint, name string) (*shown.Certificate, []string) {
	if s.TLS.Refuses(entry, name) {
		return nil, []string{"the handshake fails: " + snapshot.ErrNoCertificate.Error()}
	}
	options := s.TLS.Hosts.Of(entry.Name, name)
	config := s.TLS.Options.Configs[options]
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
	c.Default = pair == s.TLS.Fallback
	return &c, c.Problems(name, s.whyNone(name), time.Now())
}

// misdirected says why the router answers 421 to a request for the host at the entry point.
func (s Source) misdirected(entry, host string, r *route.Router) []string {
	if s.TLS.Hosts.Admits(entry, host, r.Options, r.Hostless) {
		return nil
	}
	return []string{fmt.Sprintf("the answer is 421: connections for %s have the TLS options %s, which are not as strict as %s "+
		"of router %s", host, s.TLS.Hosts.Of(entry, host), r.Options, r.Name)}
}

// whyNone says why a resolver has no certificate for the name, empty if none tries.
func (s Source) whyNone(name string) string {
	for _, c := range s.Config.ACME.Certificates {
		if slices.Contains(c.Names, strings.ToLower(name)) {
			return "; " + c.String()
		}
	}
	return ""
}

// withACME adds the states of certificates from resolvers.
func withACME(all []shown.Certificate, states []gateway.CertificateState) []shown.Certificate {
	for _, state := range states {
		own := slices.IndexFunc(all, func(c shown.Certificate) bool {
			return c.ACME == nil && !state.NotAfter.IsZero() && c.NotAfter.Equal(state.NotAfter) &&
				!slices.ContainsFunc(state.Names, func(name string) bool { return !slices.Contains(c.Names, name) })
		})
		if own < 0 {
			all = append(all, shown.Certificate{Names: state.Names, NotAfter: state.NotAfter})
			own = len(all) - 1
		}
		all[own].ACME = &state
	}
	return all
}

// Certificates returns all certificates that are in use or that resolvers try to obtain,
// by their first names, and the default one last.
func (s Source) Certificates() []shown.Certificate {
	all := []shown.Certificate{}
	seen := map[*tls.Certificate]bool{s.TLS.Fallback: true}
	for _, name := range slices.Sorted(maps.Keys(s.TLS.Certificates)) {
		pair := s.TLS.Certificates[name]
		if c, err := shownOf(pair); err == nil && !seen[pair] {
			all = append(all, c)
		}
		seen[pair] = true
	}
	all = withACME(all, s.Config.ACME.Certificates)
	slices.SortFunc(all, func(a, b shown.Certificate) int { return slices.Compare(a.Names, b.Names) })
	if c, err := shownOf(s.TLS.Fallback); err == nil {
		c.Default = true
		all = append(all, c)
	}
	return all
}
