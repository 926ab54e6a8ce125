package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// writeCertificate writes a certificate of a name and its key, whose files are an hour old.
func writeCertificate(t *testing.T, dir, name string) (chain, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	chain, key = filepath.Join(dir, "chain.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{chain: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	return chain, key
}

// TestCertificateIsTriedAgain renews the certificate while the process can open no file. The earlier one is served and
// the reason is reported once; when files can be opened again, the new one is served, although its files stayed as they
// were.
func TestCertificateIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	c, err := newCertificate(writeCertificate(t, dir, "first.example"))
	if err != nil {
		t.Fatal(err)
	}
	var reported []error
	c.kept = func(err error) { reported = append(reported, err) }
	writeCertificate(t, dir, "second.example")
	var meanwhile []string
	withoutDescriptors(t, func() {
		meanwhile = []string{c.current().Leaf.DNSNames[0], c.current().Leaf.DNSNames[0]}
	})
	if got := strings.Join(meanwhile, " "); got != "first.example first.example" || len(reported) != 1 {
		t.Errorf("without descriptors, the certificates are those of %s, and %v is reported", got, reported)
	}
	if got := c.current().Leaf.DNSNames[0]; got != "second.example" {
		t.Errorf("afterwards, the certificate is that of %s", got)
	}
}

// withoutDescriptors calls fn while the process can open no file.
func withoutDescriptors(t *testing.T, fn func()) {
	t.Helper()
	var usual syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	none := usual
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	fn()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
}

// TestCertificateFailureIsReportedOnce renews the certificate. Its files cannot be read, for two reasons that alternate:
// that is reported once. It is reported again after the files could be read.
func TestCertificateFailureIsReportedOnce(t *testing.T) {
	dir := t.TempDir()
	chain, key := writeCertificate(t, dir, "first.example")
	c, err := newCertificate(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	var reported []error
	c.kept = func(err error) { reported = append(reported, err) }
	alternate := func() {
		for range 3 {
			writeCertificate(t, dir, "second.example")
			withoutDescriptors(t, func() { c.current() })
			if err := os.Remove(key); err != nil {
				t.Fatal(err)
			}
			c.current()
		}
	}
	alternate()
	if len(reported) != 1 {
		t.Errorf("reported are %v, want one failure", reported)
	}
	writeCertificate(t, dir, "second.example")
	if got := c.current().Leaf.DNSNames[0]; got != "second.example" {
		t.Errorf("afterwards, the certificate is that of %s", got)
	}
	alternate()
	if len(reported) != 2 {
		t.Errorf("reported are %v, want two failures", reported)
	}
}
