package middleware_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

func TestPassTLSClientCert(t *testing.T) {
	uri, _ := url.Parse("spiffe://a/b")
	dc := pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 25}, Value: "org"}
	name := pkix.Name{Country: []string{"DE"}, Province: []string{"BE"}, Locality: []string{"B"},
		Organization: []string{"A", `B";Issuer="x`}, OrganizationalUnit: []string{"U"}, CommonName: "a.example",
		SerialNumber: "7", Names: []pkix.AttributeTypeAndValue{dc}}
	cert := &x509.Certificate{Raw: []byte("raw"), Subject: name, Issuer: name, SerialNumber: big.NewInt(42),
		NotBefore: time.Unix(1, 0), NotAfter: time.Unix(2, 0), DNSNames: []string{"a.example"},
		EmailAddresses: []string{"a@example"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.1")}, URIs: []*url.URL{uri}}
	all := &gateway.CertificateName{Country: true, Province: true, Locality: true, Organization: true,
		OrganizationalUnit: true, CommonName: true, SerialNumber: true, DomainComponent: true}
	const pem, info = "X-Forwarded-Tls-Client-Cert", "X-Forwarded-Tls-Client-Cert-Info"
	for _, c := range []struct {
		name, pem, info string
		value           gateway.PassTLSClientCert
		peers           []*x509.Certificate
	}{
		{name: "no certificate", value: gateway.PassTLSClientCert{PEM: true,
			Info: &gateway.CertificateInfo{SANs: true}}},
		{name: "certificates", value: gateway.PassTLSClientCert{PEM: true}, peers: []*x509.Certificate{cert, cert},
			pem: "cmF3,cmF3"},
		{name: "all", value: gateway.PassTLSClientCert{Info: &gateway.CertificateInfo{NotAfter: true, NotBefore: true,
			SANs: true, SerialNumber: true, Subject: all, Issuer: all}}, peers: []*x509.Certificate{cert},
			info: `Subject="DC=org,C=DE,ST=BE,L=B,O=A,O=B\";Issuer=\"x,OU=U,SN=7,CN=a.example";` +
				`Issuer="DC=org,C=DE,ST=BE,L=B,O=A,O=B\";Issuer=\"x,SN=7,CN=a.example";SerialNumber="42";NB="1";NA="2";` +
				`SAN="a.example,a@example,192.0.2.1,spiffe://a/b"`},
		{name: "one part of two", value: gateway.PassTLSClientCert{Info: &gateway.CertificateInfo{
			Subject: &gateway.CertificateName{CommonName: true}}}, peers: []*x509.Certificate{cert, cert},
			info: `Subject="CN=a.example",Subject="CN=a.example"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.TLS = &tls.ConnectionState{PeerCertificates: c.peers}
			for _, name := range []string{pem, info, "X_forwarded_tls_client_cert",
				"X-Forwarded-Tls-Client.cert-Info"} {
				r.Header.Set(name, "forged")
			}
			var seen http.Header
			handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header })
			wrapped := build(t, gateway.Middleware{PassTLSClientCert: &c.value}, middleware.Deps{})(handler)
			wrapped.ServeHTTP(httptest.NewRecorder(), r)
			got, err := url.QueryUnescape(seen.Get(info))
			if err != nil || got != c.info || seen.Get(pem) != c.pem {
				t.Errorf("certificate %q, %v, info\n%s, want\n%s", seen.Get(pem), err, got, c.info)
			}
			delete(seen, pem)
			delete(seen, info)
			if len(seen) > 0 {
				t.Errorf("aliases are kept: %v", seen)
			}
		})
	}
}

func TestEncodedCharacters(t *testing.T) {
	var requests []request
	for _, target := range []string{"/a%2Fb", "/a%2fb", "/a%5cb", "/a%00", "/a%3B", "/%25", "/%3f", "/x%23"} {
		requests = append(requests, request{name: target, target: target, status: 400})
	}
	requests = append(requests, request{name: "others", target: "/%20%E4?a=%2F", want: "GET /%20%E4?a=%2F"})
	run(t, gateway.Middleware{EncodedCharacters: &gateway.EncodedCharacters{}}, echo(), requests)
	all := gateway.EncodedCharacters{AllowEncodedSlash: true, AllowEncodedBackSlash: true,
		AllowEncodedNullCharacter: true, AllowEncodedSemicolon: true, AllowEncodedPercent: true,
		AllowEncodedQuestionMark: true, AllowEncodedHash: true}
	for i := range requests {
		requests[i].status = 200
	}
	run(t, gateway.Middleware{EncodedCharacters: &all}, echo(), requests)
}
