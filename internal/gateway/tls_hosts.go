package gateway

import (
	"cmp"
	"net/netip"
	"strings"

	"fairlead/internal/gateway/route"
	"fairlead/internal/gateway/rule"
)

// hostOptions has the names of the TLS options of hosts.
type hostOptions struct {
	// byHost has them by entry point and pattern of hosts: NAME, *.NAME for one more label, as in
	// Host, and * for all. It is empty if all hosts have those of their entry point.
	byHost map[[2]string]string
	// entries are those of the entry points that have others than the default ones.
	entries map[string]string
}

// of returns the name of the TLS options that a connection for the server name has at the entry
// point, and that a request for the host needs: those of the exact name, else of the wildcard
// that matches it, else of *, else of the entry point, else the default ones. It is the only
// place that decides this.
//
// Clients of an IP address send no server name (RFC 6066, 3), so addresses count as no name.
func (o hostOptions) of(entry, host string) string {
	if len(o.byHost) > 0 {
		if host = rule.CanonicalHost(host); isAddress(host) {
			host = ""
		}
		if options, ok := o.byHost[[2]string{entry, host}]; ok {
			return options
		}
		if dot := strings.IndexByte(host, '.'); dot > 0 {
			if options, ok := o.byHost[[2]string{entry, "*" + host[dot:]}]; ok {
				return options
			}
		}
		if options, ok := o.byHost[[2]string{entry, "*"}]; ok {
			return options
		}
	}
	return o.ofEntry(entry)
}

// ofEntry returns the options of the hosts that no router names.
func (o hostOptions) ofEntry(entry string) string { return cmp.Or(o.entries[entry], defaultOptions) }

// isAddress reports whether a host is an IP address.
func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// agree reports whether a request for the host may come on a connection for the server name: if
// their options differ, the client has evaded those of its host.
func (n *tlsNames) agree(entry, name, host string) bool {
	return n.hosts.of(entry, name) == n.hosts.of(entry, host)
}

// admits reports whether the router may serve a request of a connection for the server name. The
// router may have other options than the host of the request: an exact name has precedence over
// its wildcard, and a rule without a host matches all. A router that names no host and no options
// takes those of the host, if no default options are configured.
func (n *tlsNames) admits(entry, name string, r *route.Router) bool {
	if r.Options == "" || r.Hostless && r.Options == defaultOptions && !n.ownDefault {
		return true
	}
	return n.meets(n.hosts.of(entry, name), r.Options)
}
