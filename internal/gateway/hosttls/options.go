// Package hosttls decides which TLS options the connections to each host have, and which routers are disabled because
// their options would not be applied.
//
// It does not read certificates or options, and serves no handshakes: it gets options as configurations of crypto/tls,
// and returns their names.
package hosttls

import (
	"cmp"
	"crypto/tls"

	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
)

// Default is the name of the options of routers and entry points that name none.
const Default = "default"

// Options are TLS options by qualified name.
type Options struct {
	// Configs are nil for options that cannot be used.
	Configs map[string]*tls.Config
	// SNIStrict are the options that refuse names without a certificate.
	SNIStrict map[string]bool
	// OwnDefault says that the default options are configured.
	OwnDefault bool
}

// Set adds options with a name. The configuration is nil if they cannot be used.
func (o Options) Set(name string, config *tls.Config, sniStrict bool) {
	o.Configs[name], o.SNIStrict[name] = config, sniStrict
}

// At returns the name of the TLS options of a router at an entry point, empty without TLS. A router that names
// none has those of the entry point.
func At(e gateway.EntryPoint, r *gateway.Router) string {
	var own, general string
	if r.TLS != nil {
		own = r.TLS.Options
	}
	if e.TLS != nil {
		general = e.TLS.Options
	}
	if r.TLS == nil && e.TLS == nil {
		return ""
	}
	return cmp.Or(own, general, Default)
}

// Meets reports whether connections with some options satisfy others.
func (o Options) Meets(have, need string) bool {
	if have == need {
		return true
	}
	a, b := o.Configs[have], o.Configs[need]
	return a != nil && b != nil && (o.SNIStrict[have] || !o.SNIStrict[need]) && tlsconfig.AtLeast(a, b)
}

// compare orders names of options, the strictest ones first. Those that cannot be used are last.
func (o Options) compare(x, y string) int {
	a, b := o.Configs[x], o.Configs[y]
	if a == nil || b == nil {
		return cmp.Or(cmp.Compare(order(a == nil), order(b == nil)), cmp.Compare(x, y))
	}
	return cmp.Or(tlsconfig.Compare(a, b), cmp.Compare(order(!o.SNIStrict[x]), order(!o.SNIStrict[y])),
		cmp.Compare(x, y))
}

// order orders false before true.
func order(last bool) int {
	if last {
		return 1
	}
	return 0
}
