package gateway

import (
	"net/netip"
	"strings"

	"fairlead/internal/gateway/rule"
)

// hostOptions has the names of TLS options by entry point and pattern of hosts: NAME, *.NAME for
// one more label, as in Host, and * for all. It is empty if all have the default ones.
type hostOptions map[[2]string]string

// of returns the name of the TLS options that a connection for the server name has at the entry
// point, and that a request for the host needs: those of the exact name, else of the wildcard
// that matches it, else of *, else the default ones. It is the only place that decides this.
//
// Clients of an IP address send no server name (RFC 6066, 3), so addresses count as no name.
func (o hostOptions) of(entry, host string) string {
	if len(o) == 0 {
		return defaultOptions
	}
	host = rule.CanonicalHost(host)
	if _, err := netip.ParseAddr(host); err == nil {
		host = ""
	}
	if options, ok := o[[2]string{entry, host}]; ok {
		return options
	}
	if dot := strings.IndexByte(host, '.'); dot > 0 {
		if options, ok := o[[2]string{entry, "*" + host[dot:]}]; ok {
			return options
		}
	}
	if options, ok := o[[2]string{entry, "*"}]; ok {
		return options
	}
	return defaultOptions
}

// agree reports whether a request for the host may come on a connection for the server name: if
// their options differ, the client has evaded those of its host.
func (n *tlsNames) agree(entry, name, host string) bool {
	return n.hosts.of(entry, name) == n.hosts.of(entry, host)
}

// tlsUse is what a router wants of the connections to its hosts.
type tlsUse struct {
	entry, options string
	// domains are the names that its rule has.
	domains []string
	// patterns match the hosts of all of its requests, unless open.
	patterns []string
	open     bool
}

func newTLSUse(entry, options string, r *rule.Rule) tlsUse {
	use := tlsUse{entry: entry, options: options, domains: r.Domains()}
	patterns, ok := r.HostPatterns()
	if use.patterns, use.open = patterns, !ok; use.open {
		use.patterns = use.domains
	}
	return use
}

// optionsByHost returns the TLS options by entry point and host. If routers disagree about a
// host, it has the default options, as in Traefik.
func (b *builder) optionsByHost() hostOptions {
	if last := b.current.Load(); last != nil && !b.tlsChanged() {
		return last.tls.hosts
	}
	all, needed := hostOptions{}, false
	for _, r := range b.kept.routers {
		for _, use := range r.tls {
			needed = needed || use.options != defaultOptions
			for _, pattern := range use.patterns {
				key := [2]string{use.entry, pattern}
				if had, ok := all[key]; ok && had != use.options {
					all[key] = defaultOptions
					continue
				}
				all[key] = use.options
			}
		}
	}
	if !needed {
		return nil
	}
	return all
}

// tlsChanged reports whether a router that has or had TLS has changed.
func (b *builder) tlsChanged() bool {
	for o := range b.changed {
		if o.kind != "router" {
			continue
		}
		old, now := b.old[o.name], b.kept.routers[o.name]
		if old != nil && old.tls != nil || now != nil && now.tls != nil {
			return true
		}
	}
	return false
}
