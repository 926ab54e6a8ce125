package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificates writes a certificate and key for each name, NAME.pem and NAME.key, and
// returns the authority that has signed them, which it writes to authority.pem.
func certificates(t *testing.T, dir string, hosts map[string]string) *x509.CertPool {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign}
	root := signed(t, authority, authority, nil, "")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw})
	if err := os.WriteFile(filepath.Join(dir, "authority.pem"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, host := range hosts {
		c := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{host},
			NotBefore: authority.NotBefore, NotAfter: authority.NotAfter}
		signed(t, c, authority, root, filepath.Join(dir, name))
	}
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	return pool
}

// signed signs a certificate, with its own key if by is nil, writes it to files if path is
// not empty, and returns its key.
func signed(t *testing.T, c, authority *x509.Certificate, by *ecdsa.PrivateKey, path string) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	if path == "" {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		*c = *parsed
		return key
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{path + ".pem": {Type: "CERTIFICATE", Bytes: der},
		path + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return key
}
