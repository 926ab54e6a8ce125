package gateway

import (
	"crypto/tls"
	"errors"
	"fairlead/internal/model/gateway"
	"fmt"
)

// serverTLS returns the configuration of an entry point, which looks up everything
// else for each connection.
func (c *current) serverTLS(entry gateway.EntryPoint) *tls.Config {
	find := func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.Load().tls
		if c := now.challenge(hello); c != nil {
			return c, nil
		}
		if now.refuses(entry, hello.ServerName) {
			return nil, errNoCertificate
		}
		name := now.hosts.Of(entry.Name, hello.ServerName)
		options := now.options.Configs[name]
		if options == nil {
			return nil, fmt.Errorf("TLS options %s cannot be used", name)
		}
		return withCertificate(options, hello)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: find}
}

// strictly returns the function, which finds the configuration of a connection of a TCP router, with the refusals
// of the entry point.
func (c *current) strictly(entry gateway.EntryPoint,
	find func(*tls.ClientHelloInfo) (*tls.Config, error)) func(*tls.ClientHelloInfo) (*tls.Config, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if c.Load().tls.refuses(entry, hello.ServerName) {
			return nil, errNoCertificate
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

// certificateOr returns a function that chooses the certificate of a connection. If
// strict, it refuses names that have none.
func (c *current) certificateOr(strict bool) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		now := c.Load().tls
		switch found := now.certificate(hello.ServerName); {
		case found != nil:
			return found, nil
		case strict:
			return nil, errNoCertificate
		}
		return now.fallback, nil
	}
}

// errNoCertificate refuses a handshake (sniStrict).
var errNoCertificate = errors.New("no certificate for this name, and sniStrict refuses others")
