// Package tlsconfig makes configurations of crypto/tls from TLS options, certificates and keys, and gives them the keys
// of session tickets.
//
// It does not choose the certificate or the options of a connection.
package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/model/gateway"
)

var tlsVersions = map[string]uint16{"": 0, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
	"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

var clientAuthTypes = map[string]tls.ClientAuthType{
	"": tls.NoClientCert, "NoClientCert": tls.NoClientCert, "RequestClientCert": tls.RequestClientCert,
	"RequireAnyClientCert": tls.RequireAnyClientCert, "VerifyClientCertIfGiven": tls.VerifyClientCertIfGiven,
	"RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
}

var curves = map[string]tls.CurveID{"CurveP256": tls.CurveP256, "CurveP384": tls.CurveP384,
	"CurveP521": tls.CurveP521, "X25519": tls.X25519, "X25519MLKEM768": tls.X25519MLKEM768,
	"secp256r1": tls.CurveP256, "secp384r1": tls.CurveP384, "secp521r1": tls.CurveP521, "x25519": tls.X25519}

// ChallengeProtocol is the ALPN protocol of a TLS-ALPN-01 challenge (RFC 8737, 6.2).
const ChallengeProtocol = "acme-tls/1"

// Options returns the configuration with the options.
func Options(o *gateway.TLSOptions) (*tls.Config, error) {
	c := &tls.Config{NextProtos: []string{"h2", "http/1.1"}, SessionTicketsDisabled: o.DisableSessionTickets}
	if len(o.ALPNProtocols) > 0 {
		c.NextProtos = slices.DeleteFunc(slices.Clone(o.ALPNProtocols),
			func(name string) bool { return name == ChallengeProtocol })
	}
	if err := Limit(c, o.MinVersion, o.MaxVersion, o.CipherSuites); err != nil {
		return nil, err
	}
	if len(c.CipherSuites) == 0 {
		c.CipherSuites = aeadSuites()
	}
	for _, name := range o.CurvePreferences {
		id, err := named(curves, "curvePreferences", name)
		if err != nil {
			return nil, err
		}
		c.CurvePreferences = append(c.CurvePreferences, id)
	}
	return c, clientAuth(c, o.ClientAuth)
}

// Limit sets which versions and cipher suites a connection may use.
func Limit(c *tls.Config, least, most string, suites []string) (err error) {
	if c.MinVersion, err = named(tlsVersions, "minVersion", least); err != nil {
		return err
	}
	if c.MinVersion == 0 {
		c.MinVersion = tls.VersionTLS12
	}
	if c.MaxVersion, err = named(tlsVersions, "maxVersion", most); err != nil {
		return err
	}
	for _, name := range suites {
		id, ok := cipherSuite(name)
		if !ok {
			return fmt.Errorf("cipherSuites: %s is unknown or insecure", name)
		}
		c.CipherSuites = append(c.CipherSuites, id)
	}
	return nil
}

// clientAuth sets which certificates of clients are asked for.
func clientAuth(c *tls.Config, value gateway.ClientAuth) error {
	kind, err := named(clientAuthTypes, "clientAuthType", value.ClientAuthType)
	if err != nil {
		return err
	}
	c.ClientAuth = kind
	for _, ca := range value.CAFiles {
		pem, err := PEM(ca)
		if err != nil {
			return err
		}
		if c.ClientCAs == nil {
			c.ClientCAs = x509.NewCertPool()
		}
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("caFiles: %s has no PEM certificate", NameOf(ca))
		}
	}
	if c.ClientCAs == nil && (kind == tls.VerifyClientCertIfGiven || kind == tls.RequireAndVerifyClientCert) {
		return fmt.Errorf("clientAuthType %s needs caFiles", value.ClientAuthType)
	}
	return nil
}

// aeadSuites returns the cipher suites of TLS 1.2 with authenticated encryption. The
// library's default has others also (CBC), which have been broken again and again.
func aeadSuites() (ids []uint16) {
	for _, s := range tls.CipherSuites() {
		if strings.Contains(s.Name, "_GCM_") || strings.Contains(s.Name, "_CHACHA20_") {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

func cipherSuite(name string) (uint16, bool) {
	for _, s := range tls.CipherSuites() {
		if s.Name == name {
			return s.ID, true
		}
	}
	return 0, false
}

func named[T any](all map[string]T, key, name string) (T, error) {
	v, ok := all[name]
	if !ok {
		known := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(s string) bool { return s == "" })
		return v, fmt.Errorf("%s %s: want one of %s", key, name, strings.Join(known, ", "))
	}
	return v, nil
}
