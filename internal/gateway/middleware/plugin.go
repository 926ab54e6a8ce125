package middleware

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// replacements has what replaces well-known plugins, by a part of their names.
var replacements = []struct{ part, use string }{
	{"crowdsec", "forwardAuth with the address of a CrowdSec bouncer for forward authentication"},
	{"bouncer", "forwardAuth with the address of a CrowdSec bouncer for forward authentication"},
	{"cloudflare", "forwardedHeaders.trustedIPs of the entry point with the prefixes of Cloudflare"},
	{"real", "forwardedHeaders.trustedIPs of the entry point, and ipStrategy"},
	{"fail2ban", "rateLimit, or forwardAuth"},
	{"geo", "forwardAuth with the address of a service that knows the countries of addresses"},
	{"oidc", "forwardAuth with the address of oauth2-proxy"},
	{"oauth", "forwardAuth with the address of oauth2-proxy"},
	{"jwt", "forwardAuth with the address of a service that verifies tokens"},
	{"ldap", "forwardAuth with the address of a service that asks the directory"},
	{"header", "headers"},
	{"rewrite", "replacePathRegex or redirectRegex"},
	{"redirect", "redirectRegex"},
	{"error", "errors"},
}

// newPlugin returns an error: Traefik's plugins are Go source that Traefik interprets,
// with access to all that its process can reach. The error names the replacement.
func newPlugin(_ *builder, value *gateway.Middleware) (base.Func, error) {
	if value.Plugin == nil {
		return nil, nil
	}
	var hints []string
	for _, name := range slices.Sorted(maps.Keys(value.Plugin)) {
		use := "a middleware of another type, or forwardAuth"
		for _, r := range replacements {
			if strings.Contains(strings.ToLower(name), r.part) {
				use = r.use
				break
			}
		}
		hints = append(hints, fmt.Sprintf("instead of plugin %q use %s", name, use))
	}
	return nil, fmt.Errorf("plugins of Traefik do not run here: %s", strings.Join(hints, "; "))
}
