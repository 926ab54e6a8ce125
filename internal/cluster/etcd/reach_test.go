package etcd_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/etcd"
	"fairlead/internal/cluster/kv"
	etcdtest "fairlead/test/etcd"
	"fairlead/test/place"
)

// authority is a CA of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is the CA's certificate.
	PEM string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.key = a.newKey()
	a.PEM = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}, a.key)
	block, _ := pem.Decode([]byte(a.PEM))
	var err error
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

// sign returns the certificate of a key as PEM. The CA's own is signed by itself.
func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) string {
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// pair returns a certificate for a server and a client at 127.0.0.1 that is valid until a time, and its key.
func (a *authority) pair(until time.Time) (certificate, key string) {
	private := a.newKey()
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	certificate = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "test"}, NotBefore: until.Add(-time.Hour),
		NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, private)
	return certificate, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// files writes texts to files, and returns their paths.
func files(t *testing.T, texts ...string) (paths []string) {
	for _, text := range texts {
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, f.Name())
	}
	return paths
}

// said reports whether the error of a transaction and the state of the server contain the texts. Without texts there
// must be neither an error nor a problem.
func said(failed error, state string, want []string) bool {
	if want == nil {
		return failed == nil && state == ""
	}
	missing := func(text string) bool {
		return !strings.Contains(failed.Error(), text) || !strings.Contains(state, text)
	}
	return errors.Is(failed, kv.ErrUnavailable) && !slices.ContainsFunc(want, missing)
}

// TestReach connects to an etcd that asks for client certificates, and to others, with one mistake each. The state
// of the server and the error of a transaction say what is wrong and which flag to correct.
func TestReach(t *testing.T) {
	t.Parallel()
	ca, foreign := newAuthority(t), newAuthority(t)
	valid := time.Now().Add(time.Hour)
	certificate, key := ca.pair(valid)
	expired, expiredKey := ca.pair(time.Now().Add(-time.Minute))
	otherCertificate, otherKey := foreign.pair(valid)
	at := files(t, ca.PEM, certificate, key, expired, expiredKey)
	start := func(certificate, key string) *world {
		cluster, ns := etcdtest.Alone(t, 1, "--listen-client-urls", "http://127.0.0.1:2379,https://127.0.0.1:2390",
			"--cert-file", certificate, "--key-file", key, "--client-cert-auth", "--trusted-ca-file", at[0])
		return &world{t, cluster, ns.Do}
	}
	w, old, cut := start(at[1], at[2]), start(at[3], at[4]), newWorld(t, 1)
	cut.Members[0].CutClients(etcdtest.Both)
	place.Serve(t, w.in, "127.0.0.1:80", func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		_, _ = io.Copy(io.Discard, c) // until the client ends the connection
	})
	secure := api.EtcdAccess{CA: ca.PEM, Certificate: certificate, Key: key}
	with := func(change func(*api.EtcdAccess)) api.EtcdAccess {
		a := secure
		change(&a)
		return a
	}
	for _, test := range []struct {
		name, url string
		world     *world
		access    api.EtcdAccess
		want      []string // nothing if there is no mistake
	}{
		{"no mistake", "https://127.0.0.1:2390", w, secure, nil},
		{"no TLS", "http://127.0.0.1:2379", w, secure, nil},
		{"a wrong CA", "https://127.0.0.1:2390", w, with(func(a *api.EtcdAccess) { a.CA = foreign.PEM }),
			[]string{"not signed by the CA in --etcd-ca"}},
		{"no CA", "https://127.0.0.1:2390", w, with(func(a *api.EtcdAccess) { a.CA = "" }),
			[]string{"not signed by a CA that this host trusts", "with --etcd-ca"}},
		{"no client certificate", "https://127.0.0.1:2390", w, api.EtcdAccess{CA: ca.PEM},
			[]string{"asks for a client certificate", "--etcd-cert and --etcd-key"}},
		{"a client certificate of another CA", "https://127.0.0.1:2390", w,
			with(func(a *api.EtcdAccess) { a.Certificate, a.Key = otherCertificate, otherKey }),
			[]string{"it refuses this host's client certificate", "--trusted-ca-file"}},
		{"a client certificate that has expired", "https://127.0.0.1:2390", w,
			with(func(a *api.EtcdAccess) { a.Certificate, a.Key = expired, expiredKey }),
			[]string{"it refuses this host's client certificate", "valid now"}},
		{"a server's certificate that has expired", "https://127.0.0.1:2390", old, secure,
			[]string{"its certificate has expired or is not valid yet", "--cert-file"}},
		{"another name", "https://127.0.0.2:2390", w, secure, []string{"its certificate is not valid for 127.0.0.2",
			"in --etcd"}},
		{"http to TLS", "http://127.0.0.1:2390", w, secure, []string{"write https:// instead of http:// in --etcd"}},
		{"https to no TLS", "https://127.0.0.1:2379", w, secure, []string{"write http:// instead of https:// in --etcd"}},
		{"no etcd", "http://127.0.0.1:80", w, secure, []string{"it answers, but not as etcd", "in --etcd"}},
		{"an unknown name", "https://etcd.invalid:2379", w, secure, []string{"the name", "etcd.invalid", "--etcd"}},
		{"a closed port", "https://127.0.0.1:2391", w, secure, []string{"it refuses connections", "in --etcd"}},
		{"a firewall", "http://127.0.0.1:2379", cut, secure, []string{"it does not answer", "TCP port 2379"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.access.Endpoints = []string{test.url}
			s, err := etcd.Open(etcd.Config{Access: test.access, Cluster: "test", Silence: time.Second,
				Dial: func(_ context.Context, address string) (net.Conn, error) {
					if strings.HasPrefix(address, "etcd.invalid") {
						return nil, &net.DNSError{Err: "no such host", Name: "etcd.invalid", IsNotFound: true}
					}
					address = strings.Replace(address, "127.0.0.2", "127.0.0.1", 1)
					return place.Dial(test.world.in, "tcp", address, time.Second)
				}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for end := time.Now().Add(place.Timeout); ; {
				failed, state := commit(s, "a", time.Second, false), s.Servers(t.Context())[0].Problem
				if said(failed, state, test.want) {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("the error is %v and the state %q, want %q in both", failed, state, test.want)
				}
			}
		})
	}
}
