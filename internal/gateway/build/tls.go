package build

import (
	"crypto/tls"
	"reflect"
	"slices"
	"strings"

	"fairlead/internal/gateway/hosttls"
	"fairlead/internal/gateway/snapshot"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/tlsconfig"
	"fairlead/internal/model/gateway"
	"fairlead/internal/recovery"
)

// defaultStore is the name of the store that is in use.
const defaultStore = "default"

// keepTLS keeps the certificates and options of the last configuration if they are the
// same, and not in files that may have changed.
func (b *builder) keepTLS(statuses map[status.Object]*status.Status) bool {
	last := b.Current.Load()
	if last == nil || len(namesOfKind(b.changed, "tls options")) > 0 || hasFiles(b.config.TLS) ||
		!reflect.DeepEqual(b.kept.config.TLS, b.config.TLS) {
		b.tls = snapshot.NewNames()
		return false
	}
	same := *last.TLS
	b.tls = &same
	for o, status := range statuses {
		if o.Kind == "certificate" || o.Kind == "tls options" {
			b.status.Keep(o, status)
		}
	}
	return true
}

// hasFiles reports whether certificates are in files.
func hasFiles(t gateway.TLS) bool {
	var all []string
	for _, c := range t.Certificates {
		all = append(all, c.CertFile, c.KeyFile)
	}
	for _, s := range t.Stores {
		if c := s.DefaultCertificate; c != nil {
			all = append(all, c.CertFile, c.KeyFile)
		}
	}
	for _, o := range t.Options {
		all = append(all, o.ClientAuth.CAFiles...)
	}
	return slices.ContainsFunc(all, func(text string) bool { return !strings.Contains(text, "-----BEGIN") })
}

// addTLS adds the certificates and options of the configuration.
func (b *builder) addTLS() {
	for _, c := range b.config.TLS.Certificates {
		// A certificate has all of its names before the first one is in the table.
		if err := recovery.Object("certificate", func() { b.addCertificate(c) }); err != nil {
			b.status.Disable("certificate", tlsconfig.NameOf(c.CertFile), err.Error())
		}
	}
	b.tls.Fallback = b.own
	if s := b.config.TLS.Stores[defaultStore]; s != nil && s.DefaultCertificate != nil {
		pair, err := tlsconfig.KeyPair(*s.DefaultCertificate)
		if err != nil {
			b.status.Disable("certificate", tlsconfig.NameOf(s.DefaultCertificate.CertFile), err.Error())
		} else {
			b.tls.Fallback = &pair
		}
	}
	config, _ := tlsconfig.Options(&gateway.TLSOptions{}) // empty options are valid
	config.GetCertificate = b.Current.CertificateOr(false)
	b.tls.Options.Configs[hosttls.Default] = config
	for name, value := range b.config.TLS.Options {
		var config *tls.Config // nil closes: the handshakes of its routers fail
		if err := recovery.Object("tls options "+name, func() { config = b.optionsOf(name, value) }); err != nil {
			b.status.Disable("tls options", name, err.Error())
		}
		b.tls.Options.Set(name, config, value != nil && value.SNIStrict)
		if bare, _, _ := strings.Cut(name, "@"); bare == hosttls.Default {
			b.tls.Options.Set(hosttls.Default, config, value != nil && value.SNIStrict)
			b.tls.Options.OwnDefault = true
		}
	}
	b.refuseDefault()
}

// refuseDefault makes all handshakes with the default options fail if a front end has left them out, because it could
// not read them: they may demand certificates of clients.
func (b *builder) refuseDefault() {
	for _, s := range b.known {
		bare, _, _ := strings.Cut(s.Name, "@")
		if s.Kind == "tls options" && s.State == status.Disabled && bare == hosttls.Default {
			b.tls.Options.Configs[hosttls.Default], b.tls.Options.OwnDefault = nil, true
		}
	}
}

func (b *builder) addCertificate(c gateway.Certificate) {
	pair, err := tlsconfig.KeyPair(c)
	if err != nil {
		b.status.Disable("certificate", tlsconfig.NameOf(c.CertFile), err.Error())
		return
	}
	b.status.Of("certificate", tlsconfig.NameOf(c.CertFile))
	if slices.ContainsFunc(c.Stores, func(name string) bool { return name != defaultStore }) {
		b.status.Warn("certificate", tlsconfig.NameOf(c.CertFile), "stores has no effect: only the store \"default\" "+
			"is in use, and it has all certificates")
	}
	for _, name := range tlsconfig.Names(&pair) {
		if b.tls.Certificates[name] == nil {
			b.tls.Certificates[name] = &pair
		}
	}
}

// optionsOf returns the configuration with TLS options. It is nil if they cannot be used: then
// the handshakes of their routers fail, because they may demand certificates of clients.
func (b *builder) optionsOf(name string, value *gateway.TLSOptions) *tls.Config {
	if b.status.Disabled("tls options", name) {
		return nil // its files cannot be read
	}
	config, err := tlsconfig.Options(value)
	if err != nil {
		b.status.Disable("tls options", name, err.Error())
		return nil
	}
	if value.PreferServerCipherSuites {
		b.status.Warn("tls options", name, "preferServerCipherSuites has no effect: the order of cipher suites is "+
			"that of crypto/tls")
	}
	config.GetCertificate = b.Current.CertificateOr(value.SNIStrict)
	return config
}
