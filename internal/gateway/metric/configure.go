package metric

import (
	"crypto/tls"
	"strings"

	"fairlead/internal/model/gateway"
)

// Configure removes the metrics of those changed routers and services that the configuration lacks.
// Call it before requests use the configuration: those of unknown routers and services are not
// counted.
func (m *Metrics) Configure(config *gateway.Config, routers, services []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.config = config
	for _, name := range routers {
		m.routers.remove(name, func(c class) bool { return !m.hasRouter(name, c.service) })
	}
	for _, name := range services {
		if m.hasService(name) {
			continue
		}
		m.services.remove(name, func(class) bool { return true })
		if m.openAtServices != nil {
			delete(m.openAtServices.of, name)
		}
	}
}

// hasRouter reports whether the configuration has the router with the service. The caller has the
// lock.
func (m *Metrics) hasRouter(name, service string) bool {
	r := m.config.HTTP.Routers[name]
	return r != nil && r.Service == service || isInternal(name)
}

// hasService reports whether the configuration has the service. The caller has the lock.
func (m *Metrics) hasService(name string) bool {
	return m.config.HTTP.Services[name] != nil || isInternal(name)
}

// isInternal reports whether the object is the gateway's own.
func isInternal(name string) bool { return strings.HasSuffix(name, "@internal") }

// Configured counts a configuration that was put to use, and replaces the metrics of certificates.
func (m *Metrics) Configured(certificates []*tls.Certificate) {
	m.reloads.Inc()
	m.reloaded.SetToCurrentTime()
	m.expiry.Reset()
	for _, c := range certificates {
		leaf := c.Leaf
		m.expiry.WithLabelValues(leaf.Subject.CommonName, leaf.SerialNumber.String(),
			strings.Join(leaf.DNSNames, ",")).Set(float64(leaf.NotAfter.Unix()))
	}
}
