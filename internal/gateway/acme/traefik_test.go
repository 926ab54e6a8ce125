package acme_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"testing"
	"time"

	"fairlead/internal/gateway/acme/acmetest"
	model "fairlead/internal/model/gateway"

	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"
)

// traefikFile is acme.json as Traefik v2 and v3 write it: the URI and the key of an account, a
// certificate and its key.
const traefikFile = `{
  "le": {
    "Account": {
      "Email": "a@example.com",
      "Registration": {
        "body": {
          "status": "valid",
          "contact": [
            "mailto:a@example.com"
          ]
        },
        "uri": %q
      },
      "PrivateKey": %q,
      "KeyType": "4096"
    },
    "Certificates": [
      {
        "domain": {
          "main": "a.test",
          "sans": [
            "b.test"
          ]
        },
        "certificate": %q,
        "key": %q,
        "Store": "default"
      }
    ]
  },
  "unused": {
    "Account": null,
    "Certificates": null
  }
}`

// traefikAccount registers an account as Traefik does, and returns its URI and key.
func (w *world) traefikAccount() (uri string, key *rsa.PrivateKey) {
	w.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 4096)
	if err != nil {
		w.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(w.authority.Roots))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	client := &acmez.Client{Client: &protocol.Client{Directory: w.authority.URL,
		HTTPClient: &http.Client{Transport: transport}}}
	account, err := client.NewAccount(w.Context(), protocol.Account{TermsOfServiceAgreed: true, PrivateKey: key,
		Contact: []string{"mailto:a@example.com"}})
	if err != nil {
		w.Fatal(err)
	}
	return account.Location, key
}

// traefikCertificate returns a certificate with an RSA key, and the key, as PEM texts.
func traefikCertificate(t *testing.T, names ...string) (chain, key []byte) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(4711), Subject: pkix.Name{CommonName: names[0]},
		DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(80 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)})
}

// TestTraefiksFile starts with a file of Traefik's: its certificate is used without an order, and the
// certificate for another name is ordered with its account.
func TestTraefiksFile(t *testing.T) {
	w := newWorld(t, acmetest.Options{}, model.Resolver{TLSChallenge: true, Email: "a@example.com"})
	uri, account := w.traefikAccount()
	chain, key := traefikCertificate(t, "a.test", "b.test")
	encode := base64.StdEncoding.EncodeToString
	accountKey := encode(x509.MarshalPKCS1PrivateKey(account))
	path := w.static.Resolvers["le"].Storage
	text := fmt.Sprintf(traefikFile, uri, accountKey, encode(chain), encode(key))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`a.test`) || Host(`b.test`)")})
	stop := w.start()
	w.until("a.test,b.test", valid)
	if got := w.served("b.test").SerialNumber.Int64(); got != 4711 || w.authority.Orders() != 0 {
		t.Errorf("certificate %d after %d orders, want the one of the file and no order", got, w.authority.Orders())
	}
	stop()
	w.routers(map[string]*model.Router{"a@file": secureRouter("Host(`a.test`) || Host(`b.test`)"),
		"c@file": secureRouter("Host(`c.test`)")})
	stop = w.start()
	w.until("c.test", valid)
	stop()
	if got := w.served("a.test").SerialNumber.Int64(); got != 4711 || w.authority.Orders() != 1 ||
		w.authority.Accounts() != 1 {
		t.Errorf("certificate %d after %d orders of %d accounts, want the one of the file, and one order of its account",
			got, w.authority.Orders(), w.authority.Accounts())
	}
	checkTraefiksFile(t, path, uri, accountKey)
}

// checkTraefiksFile checks that Traefik can go on with the file.
func checkTraefiksFile(t *testing.T, path, uri, accountKey string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]struct {
		Account struct {
			Email, PrivateKey, KeyType string
			Registration               struct {
				URI string `json:"uri"`
			}
		}
		Certificates []struct {
			Domain           struct{ Main string }
			Certificate, Key []byte
			Store            string
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	a := file["le"].Account
	if a.Email != "a@example.com" || a.PrivateKey != accountKey || a.KeyType != "4096" || a.Registration.URI != uri {
		t.Errorf("the account has become %+v", a)
	}
	got := ""
	for _, c := range file["le"].Certificates {
		_, err := tls.X509KeyPair(c.Certificate, c.Key)
		got += fmt.Sprintln(c.Domain.Main, c.Store, err)
	}
	if want := "a.test default <nil>\nc.test default <nil>\n"; got != want {
		t.Errorf("certificates\n%swant\n%s", got, want)
	}
}
