package snapshot

import (
	"crypto/tls"
	"errors"
	"fmt"

	"fairlead/internal/model/gateway"
)

// ServerTLS returns the configuration of an entry point, which looks up everything
// else for each connection.
func (c *Current) ServerTLS(entry gateway.EntryPoint) *tls.Config {
	find := func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Load().TLS
		if c := now.challenge(hello); c != nil {
			return c, nil
		}
		if now.Refuses(entry, hello.ServerName) {
			return nil, ErrNoCertificate
		}
		name := now.Hosts.Of(entry.Name, hello.ServerName)
		options := now.Options.Configs[name]
		if options == nil {
			return nil, fmt.Errorf("TLS options %s cannot be used", name)
		}
		return withCertificate(options, hello)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: find}
}

// Strictly returns the function, which finds the configuration of a connection of a TCP router, with the refusals
// Of the entry point.
func (c *Current) Strictly(entry gateway.EntryPoint,
	find func(*tls.ClientHelloInfo) (*tls.Config, error)) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c.Load().TLS.Refuses(entry, hello.ServerName) {
			return nil, ErrNoCertificate
		}
		config, err := find(hello)
		if err != nil {
			return nil, err
		}
		return withCertificate(config, hello)
	}
}

// withCertificate returns the configuration of a connection, or an error if it has no certificate for the name
// (sniStrict). A handshake of TLS 1.3 that resumes a session, which may be that of another name, needs no certificate:
// crypto/tls does not ask for one.
func withCertificate(c *tls.Config, hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if _, err := c.GetCertificate(hello); err != nil {
		return nil, err
	}
	return c, nil
}

// CertificateOr returns a function that chooses the certificate of a connection. If
// strict, it refuses names that have none.
func (c *Current) CertificateOr(strict bool) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		now := c.Load().TLS
		switch found := now.certificate(hello.ServerName); {
		case found != nil:
			return found, nil
		case strict:
			return nil, ErrNoCertificate
		}
		return now.Fallback, nil
	}
}

// ErrNoCertificate refuses a handshake (sniStrict).
var ErrNoCertificate = errors.New("no certificate for this name, and sniStrict refuses others")
