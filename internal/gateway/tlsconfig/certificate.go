package tlsconfig

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"time"

	"fairlead/internal/model/gateway"
)

// KeyPair reads a certificate and its key.
func KeyPair(c gateway.Certificate) (tls.Certificate, error) {
	cert, err := PEM(c.CertFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := PEM(c.KeyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return pair, fmt.Errorf("certificate %s: %w", NameOf(c.CertFile), err)
	}
	return pair, nil
}

// PEM returns the value, or the content of the file that it names.
func PEM(value string) ([]byte, error) {
	if strings.Contains(value, "-----BEGIN") {
		return []byte(value), nil
	}
	if value == "" {
		return nil, errors.New("a certificate needs certFile and keyFile")
	}
	return os.ReadFile(value)
}

// NameOf returns a name for messages: the file, or the first name of the certificate that is
// given as text.
func NameOf(value string) string {
	if !strings.Contains(value, "-----BEGIN") {
		return value
	}
	if block, _ := pem.Decode([]byte(value)); block != nil {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			return cmp.Or(append(c.DNSNames, c.Subject.CommonName)[0], "without a name")
		}
	}
	return "given as text"
}

// Names returns the names that the certificate is for, in lower case. Its leaf must be parsed.
func Names(c *tls.Certificate) []string {
	leaf := c.Leaf
	names := append([]string(nil), leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 && leaf.Subject.CommonName != "" {
		names = append(names, leaf.Subject.CommonName)
	}
	for i := range names {
		names[i] = strings.ToLower(names[i])
	}
	return names
}

// SelfSigned returns a certificate for clients that ask for an unknown name.
func SelfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "Fairlead default certificate"},
		DNSNames: []string{"fairlead.invalid"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
