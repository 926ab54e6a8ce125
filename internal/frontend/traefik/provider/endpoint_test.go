package provider

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead/internal/dockerapi"
	"fairlead/internal/model/gateway"
)

// TestTLS checks which settings reach an engine that asks for certificates of its clients.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	f := newFakeEngine()
	f.set("one", "10.0.0.1", "", "")
	engine := httptest.NewUnstartedServer(f)
	engine.Config.ErrorLog = log.New(io.Discard, "", 0)
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(keyPair(t, dir, "client"))
	keyPair(t, dir, "server")
	own, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	engine.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: clients}
	engine.StartTLS()
	t.Cleanup(engine.Close)
	_, address, _ := strings.Cut(engine.URL, "://")
	client, server := filepath.Join(dir, "client"), filepath.Join(dir, "server")
	with := func(ca string) *gateway.ClientTLS {
		return &gateway.ClientTLS{CA: ca, Cert: client + ".pem", Key: client + ".key", InsecureSkipVerify: ca == ""}
	}
	for name, c := range map[string]struct {
		scheme string
		tls    *gateway.ClientTLS
		// problem is in the error, "" if the containers are read.
		problem string
	}{
		"tcp":           {"tcp", with(server + ".pem"), ""},
		"https":         {"https", with(server + ".pem"), ""},
		"not verified":  {"tcp", with(""), ""},
		"another CA":    {"tcp", with(client + ".pem"), "unknown authority"},
		"system's CAs":  {"https", nil, "unknown authority"},
		"no client":     {"tcp", &gateway.ClientTLS{CA: server + ".pem"}, "certificate required"},
		"without TLS":   {"tcp", nil, "HTTP request to an HTTPS server"},
		"no such CA":    {"tcp", &gateway.ClientTLS{CA: server + ".crt"}, "no such file"},
		"no CA in file": {"tcp", &gateway.ClientTLS{CA: server + ".key"}, "has no PEM certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := dockerapi.New(c.scheme+"://"+address, c.tls)
			if err == nil {
				_, err = list(t.Context(), e)
			}
			switch {
			case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
				t.Errorf("got %v, want %q", err, c.problem)
			case c.problem == "":
				want := follow(t, newProvider(t, gateway.Docker{Endpoint: c.scheme + "://" + address, TLS: c.tls}))
				want("at the start", "http://10.0.0.1:80")
			}
		})
	}
}

// keyPair writes NAME.pem, a certificate for 127.0.0.1 that has signed itself, and NAME.key, and
// returns the certificate.
func keyPair(t *testing.T, dir, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, content := range map[string][]byte{name + ".pem": certificate,
		name + ".key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate
}
