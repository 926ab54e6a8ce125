package acme

import "fairlead/internal/model/gateway"

// mostMissing is how many names without a certificate are shown: the states are part of each
// configuration, and thousands of routers may rely on the default certificate.
const mostMissing = 100

// missing returns the first names of routers with TLS that no certificate is valid for, also not
// the default one, and that no router asks a resolver for. They are only shown.
func (c *collector) missing(defaults *gateway.Store) (all []wanted) {
	if len(c.without) == 0 {
		return nil
	}
	covered := c.covered()
	if defaults != nil && defaults.DefaultCertificate != nil {
		for _, name := range givenNames([]gateway.Certificate{*defaults.DefaultCertificate}) {
			covered[name] = true
		}
	}
	for _, r := range c.without {
		for _, name := range r.names {
			if covers(covered, name) {
				continue
			}
			if len(all) == mostMissing {
				return all
			}
			covered[name] = true // once
			all = append(all, wanted{names: []string{name}, routers: []string{r.router}, problem: "router " + r.router +
				" has no tls.certResolver: set it, or add a certificate with this name to tls.certificates"})
		}
	}
	return all
}
