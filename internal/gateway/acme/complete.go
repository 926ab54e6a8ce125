package acme

import (
	"maps"
	"slices"
	"time"

	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// Complete adds certificates, challenges and states to a configuration, and begins to obtain
// what its routers want and the storage does not have.
func (m *Manager) Complete(config *gateway.Config) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// If wantedBy panics, the certificates stay as they are: it changes nothing but the known rules, which are a cache.
	var all []wanted
	if recovery.Object("certificates", func() {
		all = wantedBy(config, &m.Static, givenNames(config.TLS.Certificates), &m.rules)
	}) == nil {
		m.follow(all)
	}
	m.challenges.addTo(&config.ACME)
	if m.Shared != nil {
		addShared(m.Shared.Challenges(), &config.ACME)
	}
	for _, key := range slices.Sorted(maps.Keys(m.certificates)) {
		c := m.certificates[key]
		config.ACME.Certificates = append(config.ACME.Certificates, c.state())
		if c.held == nil {
			continue
		}
		value := gateway.Certificate{CertFile: string(c.held.Certificate), KeyFile: string(c.held.Key)}
		config.TLS.Certificates = append(config.TLS.Certificates, value)
		if c.isDefault && config.TLS.Stores["default"] != nil {
			s := *config.TLS.Stores["default"]
			s.DefaultCertificate = &value
			config.TLS.Stores = maps.Clone(config.TLS.Stores)
			config.TLS.Stores["default"] = &s
		}
	}
	m.wake.Send()
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
	m.choose(r, c)
	if r.problem == "" {
		m.readAttempt(r, c)
	}
	return c
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
	case c.waiting != nil && c.problem == "":
		s.Reason, s.Next, s.State = c.waiting.Error(), time.Time{}, c.waitingState(valid)
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

// waitingState returns the state of a certificate whose next attempt has not begun.
func (c *certificate) waitingState(valid bool) string {
	switch {
	case valid:
		return gateway.CertificateValid
	case isBusy(c.waiting):
		return gateway.CertificateObtaining
	}
	return gateway.CertificatePending
}
