package acme

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead/internal/model/gateway"
)

// Complete adds certificates, challenges and states to a configuration, and begins to obtain
// what its routers want and the storage does not have.
func (m *Manager) Complete(config *gateway.Config) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.follow(wantedBy(config, &m.Static, givenNames(config.TLS.Certificates), &m.rules))
	m.challenges.addTo(&config.ACME)
	for _, key := range slices.Sorted(maps.Keys(m.certificates)) {
		c := m.certificates[key]
		config.ACME.Certificates = append(config.ACME.Certificates, c.state())
		if c.held == nil {
			continue
		}
		value := gateway.Certificate{CertFile: string(c.held.Certificate), KeyFile: string(c.held.Key)}
		config.TLS.Certificates = append(config.TLS.Certificates, value)
		if c.isDefault {
			s := *config.TLS.Stores["default"]
			s.DefaultCertificate = &value
			config.TLS.Stores = maps.Clone(config.TLS.Stores)
			config.TLS.Stores["default"] = &s
		}
	}
	m.awake()
}

// follow replaces the wanted certificates, and keeps the state of those that are still wanted.
func (m *Manager) follow(all []wanted) {
	next := map[string]*certificate{}
	for _, w := range all {
		c := m.certificates[w.key()]
		if c == nil {
			c = m.begin(w)
		}
		c.wanted = w
		if r := m.resolvers[w.resolver]; r != nil && r.problem != "" {
			c.problem = r.problem
		}
		next[w.key()] = c
	}
	m.certificates = next
}

// begin returns the state of a certificate that was not wanted before, from the storage.
func (m *Manager) begin(w wanted) *certificate {
	c := &certificate{wanted: w}
	r := m.resolvers[w.resolver]
	if r == nil {
		return c
	}
	if c.held = r.find(w.names); c.held != nil {
		if c.renewal = renewalOf(c.held.leaf); r.problem == "" && !c.held.isFrom(r.value.CAServer) {
			c.renewal = time.Time{}
		}
	}
	if r.problem != "" {
		return c
	}
	var a attempt
	switch ok, err := r.store.load(context.Background(), &a, attemptKind, idOf(w.names)); {
	case err != nil:
		m.Log.Warn("cannot read when a certificate was tried last", "names", strings.Join(w.names, ","), "error", err)
	case ok && a.Settings == r.settings:
		c.attempt = a
	}
	return c
}

// find returns the stored certificate that is valid for the names, and if there are several,
// the one that is valid for the longest time.
func (r *resolver) find(names []string) (best *held) {
	for _, key := range slices.Sorted(maps.Keys(r.stored)) {
		if h := r.stored[key]; h.isValidFor(names) && (best == nil || h.leaf.NotAfter.After(best.leaf.NotAfter)) {
			best = h
		}
	}
	return best
}

// state returns what users see of the certificate.
func (c *certificate) state() gateway.CertificateState {
	s := gateway.CertificateState{Names: c.names, Resolver: c.resolver, Routers: c.routers,
		State: gateway.CertificatePending, Failures: c.attempt.Failures, Reason: c.attempt.Reason, Next: c.next()}
	valid := c.held != nil && time.Now().Before(c.held.leaf.NotAfter)
	if c.held != nil {
		s.NotAfter = c.held.leaf.NotAfter
	}
	switch {
	case c.resolver == "":
		s.Reason, s.Next, s.State = c.problem, time.Time{}, gateway.CertificateMissing
	case c.problem != "":
		s.Reason, s.Next = c.problem, time.Time{}
		s.State = gateway.CertificateFailed
	case c.attempt.Failures > 0:
		s.State = gateway.CertificateFailed
	case valid:
		s.State = gateway.CertificateValid
	case c.running:
		s.State = gateway.CertificateObtaining
	}
	return s
}

// givenNames returns the names of the certificates that providers give.
func givenNames(certificates []gateway.Certificate) (names []string) {
	for _, c := range certificates {
		text := []byte(c.CertFile)
		if !strings.Contains(c.CertFile, "-----BEGIN") {
			text, _ = os.ReadFile(c.CertFile) // the gateway reports the error
		}
		names = append(names, namesOfPEM(text)...)
	}
	return names
}

// namesOfPEM returns the names of the first certificate, if it is valid for now.
func namesOfPEM(text []byte) []string {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil || time.Now().After(leaf.NotAfter) {
		return nil
	}
	return leaf.DNSNames
}
