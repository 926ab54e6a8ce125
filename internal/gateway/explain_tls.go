package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ShownCertificate is a certificate as people see it.
type ShownCertificate struct {
	Names     []string  `json:"names"`
	Issuer    string    `json:"issuer,omitempty"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	// Default says that clients get it for names that no other certificate has.
	Default bool `json:"default,omitempty"`
}

// shown describes a certificate.
func shown(c *tls.Certificate) (ShownCertificate, error) {
	leaf := c.Leaf
	if leaf == nil {
		var err error
		if leaf, err = x509.ParseCertificate(c.Certificate[0]); err != nil {
			return ShownCertificate{}, err
		}
	}
	return ShownCertificate{Names: namesOf(&tls.Certificate{Leaf: leaf}), Issuer: leaf.Issuer.String(),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter}, nil
}

// shownCertificate returns the certificate that a client gets which asks an entry point for
// a name, and why it does not accept it. It is nil if the handshake fails.
func (s *snapshot) shownCertificate(entry, name string) (*ShownCertificate, []string) {
	options := s.tls.optionsOf(entry, strings.ToLower(name))
	config := s.tls.options[options]
	if config == nil {
		return nil, []string{fmt.Sprintf("the handshake fails: TLS options %s cannot be used", options)}
	}
	pair, err := config.GetCertificate(&tls.ClientHelloInfo{ServerName: name})
	if err != nil {
		return nil, []string{"the handshake fails: " + err.Error()}
	}
	c, err := shown(pair)
	if err != nil {
		return nil, []string{"the certificate cannot be read: " + err.Error()}
	}
	c.Default = pair == s.tls.fallback
	var problems []string
	now := time.Now()
	switch {
	case c.Default:
		problems = append(problems, "no certificate has the name "+name+": clients get the default one and refuse it")
	case now.After(c.NotAfter):
		problems = append(problems, "the certificate has expired: clients refuse it")
	case now.Before(c.NotBefore):
		problems = append(problems, "the certificate is not valid yet: clients refuse it")
	}
	return &c, problems
}

// shownCertificates returns all certificates that are in use, by their first names, and the
// default one last.
func (s *snapshot) shownCertificates() []ShownCertificate {
	all := []ShownCertificate{}
	seen := map[*tls.Certificate]bool{s.tls.fallback: true}
	for _, name := range SortedKeys(s.tls.certificates) {
		pair := s.tls.certificates[name]
		if c, err := shown(pair); err == nil && !seen[pair] {
			all = append(all, c)
		}
		seen[pair] = true
	}
	slices.SortFunc(all, func(a, b ShownCertificate) int { return slices.Compare(a.Names, b.Names) })
	if c, err := shown(s.tls.fallback); err == nil {
		c.Default = true
		all = append(all, c)
	}
	return all
}
