package health

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"time"

	"fairlead/internal/model"
)

// secure makes TLS connections to servers. Every check makes a full handshake,
// because a resumed session shows no certificate.
type secure struct {
	config *tls.Config
	// expiry is how long a certificate must still be valid; 0 skips this check.
	expiry time.Duration
}

// newSecure returns the TLS client of a check. If the check has no TLS name, the
// certificate is not verified.
func newSecure(c model.Check, m Means) *secure {
	s := &secure{expiry: c.Expiry, config: &tls.Config{ServerName: c.TLSName, RootCAs: m.Roots,
		InsecureSkipVerify: c.TLSName == ""}}
	if c.TLSName == "" {
		s.config.ServerName = hostName(c.Host)
	}
	s.config.VerifyConnection = s.verify
	return s
}

// hostName returns the name in a Host header, or "" for an address.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return host
}

// client returns the connection with TLS on it.
func (s *secure) client(ctx context.Context, conn net.Conn, protocols ...string) (*tls.Conn, error) {
	config := s.config
	if len(protocols) > 0 {
		config = config.Clone()
		config.NextProtos = protocols
	}
	client := tls.Client(conn, config)
	return client, client.HandshakeContext(ctx)
}

func (s *secure) verify(state tls.ConnectionState) error {
	if s.expiry == 0 || len(state.PeerCertificates) == 0 {
		return nil
	}
	return expires(state.PeerCertificates[0], s.expiry, time.Now())
}

// expires returns an error if a certificate expires within the time left.
func expires(c *x509.Certificate, left time.Duration, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate expired on %s", c.NotAfter.UTC().Format(time.DateOnly))
	case now.Add(left).After(c.NotAfter):
		return fmt.Errorf("the certificate expires on %s", c.NotAfter.UTC().Format(time.DateOnly))
	}
	return nil
}
