package headers

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// The headers that have the client's certificate.
const (
	headerClientCert     = "X-Forwarded-Tls-Client-Cert"
	headerClientCertInfo = "X-Forwarded-Tls-Client-Cert-Info"
)

// NewPassTLSClientCert sends the client's certificates to the server: each in base64, or
// the configured parts of each, separated by commas. The client's own headers of these
// names are deleted.
func NewPassTLSClientCert(_ *base.Builder, v *gateway.PassTLSClientCert) (base.Func, error) {
	if !v.PEM && v.Info == nil {
		return nil, base.ErrNoOption
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{headerClientCert, headerClientCertInfo} {
				r.Header.Del(name)
				base.Protect(r.Header, name)
			}
			if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
				passCertificates(r, v)
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

func passCertificates(r *http.Request, v *gateway.PassTLSClientCert) {
	var raw, info []string
	for _, cert := range r.TLS.PeerCertificates {
		raw = append(raw, base64.StdEncoding.EncodeToString(cert.Raw))
		if v.Info != nil {
			info = append(info, certificateInfo(cert, v.Info))
		}
	}
	if v.PEM {
		r.Header.Set(headerClientCert, strings.Join(raw, ","))
	}
	if v.Info != nil {
		r.Header.Set(headerClientCertInfo, url.QueryEscape(strings.Join(info, ",")))
	}
}

// certificateInfo returns parts of a certificate, NAME="VALUE", separated by semicolons.
func certificateInfo(cert *x509.Certificate, v *gateway.CertificateInfo) string {
	var fields []string
	add := func(set bool, name, value string) {
		if set && value != "" {
			fields = append(fields, name+`="`+value+`"`)
		}
	}
	add(v.Subject != nil, "Subject", distinguishedName(&cert.Subject, v.Subject, true))
	add(v.Issuer != nil, "Issuer", distinguishedName(&cert.Issuer, v.Issuer, false))
	add(v.SerialNumber, "SerialNumber", fmt.Sprint(cert.SerialNumber))
	add(v.NotBefore, "NB", fmt.Sprint(cert.NotBefore.Unix()))
	add(v.NotAfter, "NA", fmt.Sprint(cert.NotAfter.Unix()))
	add(v.SANs, "SAN", alternativeNames(cert))
	return strings.Join(fields, ";")
}

// domainComponent is the attribute of RFC 2247.
const domainComponent = "0.9.2342.19200300.100.1.25"

// distinguishedName returns the configured attributes of a name. Organizational units
// are sent of subjects only.
func distinguishedName(name *pkix.Name, v *gateway.CertificateName, subject bool) string {
	if v == nil {
		return ""
	}
	var parts []string
	add := func(set bool, key string, values ...string) {
		for _, value := range values {
			if set && value != "" {
				parts = append(parts, key+"="+escapeQuotes.Replace(value))
			}
		}
	}
	for _, attribute := range name.Names {
		if attribute.Type.String() == domainComponent {
			add(v.DomainComponent, "DC", fmt.Sprint(attribute.Value))
		}
	}
	add(v.Country, "C", name.Country...)
	add(v.Province, "ST", name.Province...)
	add(v.Locality, "L", name.Locality...)
	add(v.Organization, "O", name.Organization...)
	add(v.OrganizationalUnit && subject, "OU", name.OrganizationalUnit...)
	add(v.SerialNumber, "SN", name.SerialNumber)
	add(v.CommonName, "CN", name.CommonName)
	return strings.Join(parts, ",")
}

// escapeQuotes keeps a name in a certificate from ending the value early: Traefik does
// not escape, so that a name could pretend to be another field.
var escapeQuotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// alternativeNames returns the subject alternative names of a certificate.
func alternativeNames(cert *x509.Certificate) string {
	names := append(append([]string(nil), cert.DNSNames...), cert.EmailAddresses...)
	for _, address := range cert.IPAddresses {
		names = append(names, address.String())
	}
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	return escapeQuotes.Replace(strings.Join(names, ","))
}
