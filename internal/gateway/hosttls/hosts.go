package hosttls

import (
	"cmp"
	"net/netip"
	"strings"

	"fairlead/internal/gateway/rule"
)

// Hosts has the names of the TLS options of hosts. It does not change; its zero value knows no options.
type Hosts struct {
	options Options
	// byHost has them by entry point and pattern of hosts: NAME, *.NAME for one more label, as in
	// Host, and * for all. It is empty if all hosts have those of their entry point.
	byHost map[[2]string]string
	// entries are those of the entry points that have others than the default ones.
	entries map[string]string
}

// Of returns the name of the TLS options that a connection for the server name has at the entry
// point, and that a request for the host needs: those of the exact name, else of the wildcard
// that matches it, else of *, else of the entry point, else the default ones. It is the only
// place that decides this.
//
// Clients of an IP address send no server name (RFC 6066, 3), so addresses count as no name.
func (h Hosts) Of(entry, host string) string {
	if len(h.byHost) > 0 {
		if host = rule.CanonicalHost(host); isAddress(host) {
			host = ""
		}
		if options, ok := h.byHost[[2]string{entry, host}]; ok {
			return options
		}
		if dot := strings.IndexByte(host, '.'); dot > 0 {
			if options, ok := h.byHost[[2]string{entry, "*" + host[dot:]}]; ok {
				return options
			}
		}
		if options, ok := h.byHost[[2]string{entry, "*"}]; ok {
			return options
		}
	}
	return h.ofEntry(entry)
}

// ofEntry returns the options of the hosts that no router names.
func (h Hosts) ofEntry(entry string) string { return cmp.Or(h.entries[entry], Default) }

// isAddress reports whether a host is an IP address.
func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// Agree reports whether a request for the host may come on a connection for the server name: if
// their options differ, the client has evaded those of its host.
func (h Hosts) Agree(entry, name, host string) bool { return h.Of(entry, name) == h.Of(entry, host) }

// Admits reports whether a router with the options may serve a request of a connection for the server
// name. The router may have other options than the host of the request: an exact name has precedence over
// its wildcard, and a rule without a host matches all. A router that names no host (hostless) and no options
// takes those of the host, if no default options are configured. A router without TLS serves all.
func (h Hosts) Admits(entry, name, options string, hostless bool) bool {
	if options == "" || hostless && options == Default && !h.options.OwnDefault {
		return true
	}
	return h.options.Meets(h.Of(entry, name), options)
}
