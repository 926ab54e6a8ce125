package tlsconfig

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

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
