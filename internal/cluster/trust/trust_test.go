package trust_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead/internal/cluster/trust"
)

// cluster is a CA with its cluster's id.
type cluster struct {
	*testing.T
	id string
	ca *trust.Authority
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	id := trust.NewID()
	ca, err := trust.NewAuthority(id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return cluster{t, id, ca}
}

// node returns a node with a certificate.
func (c cluster) node() trust.Node {
	c.Helper()
	key, err := trust.NewKey()
	if err != nil {
		c.Fatal(err)
	}
	id := trust.Identity{Cluster: c.id, Node: trust.NewID()}
	der, err := c.ca.Sign(id, &key.PublicKey, time.Now())
	if err != nil {
		c.Fatal(err)
	}
	return trust.Node{Identity: id, Certificate: der, CA: c.ca.Certificate, Key: key}
}

func all(trust.Peer) bool  { return true }
func none(trust.Peer) bool { return false }

// shake connects two sides, and returns the errors of both handshakes.
func shake(t *testing.T, client, server *tls.Config) (clientErr, serverErr error) {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	deadline := time.Now().Add(time.Minute)
	_, _ = a.SetDeadline(deadline), b.SetDeadline(deadline)
	served := make(chan error, 1)
	go func() {
		defer b.Close()
		s := tls.Server(b, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		served <- err
	}()
	c := tls.Client(a, client)
	err := c.Handshake()
	if err == nil { // the server refuses a client's certificate after the client's handshake
		_, err = c.Read(make([]byte, 1))
	}
	a.Close()
	return err, <-served
}

// TestNodesVerifyEachOther connects nodes of the same cluster, of another one, with the wrong id,
// with an expired certificate, and after one of them was removed.
func TestNodesVerifyEachOther(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	one, two, foreign := c.node(), c.node(), other.node()
	// The foreign node has the public certificate of this CA, and trusts this cluster.
	foreign.CA, foreign.Cluster = c.ca.Certificate, c.id
	of := func(n trust.Node) func() trust.Node { return func() trust.Node { return n } }
	later := func() time.Time { return time.Now().Add(trust.NodeLife + time.Hour) }
	for name, test := range map[string]struct {
		client, server *tls.Config
		want           string
	}{
		"same cluster": {trust.Client(of(one), two.Node, all, time.Now), trust.Server(of(two), all, time.Now), ""},
		"other CA's server": {trust.Client(of(one), foreign.Node, all, time.Now),
			trust.Server(of(foreign), all, time.Now), "unknown authority"},
		"other CA's client": {trust.Client(of(foreign), two.Node, all, time.Now), trust.Server(of(two), all, time.Now),
			"unknown authority"},
		"another node": {trust.Client(of(one), one.Node, all, time.Now), trust.Server(of(two), all, time.Now),
			"answers at its address"},
		"removed client": {trust.Client(of(one), two.Node, all, time.Now), trust.Server(of(two), none, time.Now),
			"does not belong to the cluster"},
		"removed server": {trust.Client(of(one), two.Node, none, time.Now), trust.Server(of(two), all, time.Now),
			"does not belong to the cluster"},
		"expired": {trust.Client(of(one), two.Node, all, later), trust.Server(of(two), all, time.Now),
			"compare the clocks"},
		"TLS 1.2": {&tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true},
			trust.Server(of(two), all, time.Now), "version"},
	} {
		clientErr, serverErr := shake(t, test.client, test.server)
		err := errors.Join(clientErr, serverErr)
		refused := err != nil && strings.Contains(err.Error(), test.want)
		if test.want == "" && err != nil || test.want != "" && !refused {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestPinned joins with the hash of the CA. Someone else's node, which may even send the right CA's
// certificate, is recognised.
func TestPinned(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	node, middle := c.node(), other.node()
	config, found := trust.Pinned(trust.Hash(c.ca.Certificate), time.Now)
	server := trust.Server(func() trust.Node { return node }, none, time.Now)
	if one, two := shake(t, config, server); one != nil || two != nil {
		t.Fatal(one, two)
	}
	if ca, id := found(); string(ca) != string(c.ca.Certificate) || id != node.Identity {
		t.Errorf("the node is %v", id)
	}
	for _, sent := range [][]byte{other.ca.Certificate, c.ca.Certificate} {
		middle.CA = sent
		config, found := trust.Pinned(trust.Hash(c.ca.Certificate), time.Now)
		err, _ := shake(t, config, trust.Server(func() trust.Node { return middle }, all, time.Now))
		if err == nil {
			t.Error("a node of another CA is accepted")
		}
		if _, id := found(); id.Node != "" {
			t.Errorf("its identity is %v", id)
		}
	}
}

// TestSeal encrypts the key of a CA, and decrypts it only with the right key and certificate.
func TestSeal(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	key := trust.NewClusterKey()
	sealed, err := c.ca.Seal(key)
	if err != nil {
		t.Fatal(err)
	}
	again, err := trust.OpenAuthority(c.ca.Certificate, sealed, key)
	if err != nil {
		t.Fatal(err)
	}
	c.ca = again
	n := c.node()
	of := func() trust.Node { return n }
	one, two := shake(t, trust.Client(of, n.Node, all, time.Now), trust.Server(of, all, time.Now))
	if one != nil || two != nil {
		t.Errorf("a certificate of the decrypted CA: %v, %v", one, two)
	}
	for at := range sealed {
		broken := append([]byte{}, sealed...)
		broken[at] ^= 1
		if _, err := trust.OpenAuthority(c.ca.Certificate, broken, key); err == nil {
			t.Fatalf("a changed byte %d is accepted", at)
		}
	}
	for name, fails := range map[string]func() error{
		"another key": func() error {
			_, err := trust.OpenAuthority(c.ca.Certificate, sealed, trust.NewClusterKey())
			return err
		},
		"another certificate": func() error {
			_, err := trust.OpenAuthority(other.ca.Certificate, sealed, key)
			return err
		},
		"truncated": func() error { _, err := trust.OpenAuthority(c.ca.Certificate, sealed[:5], key); return err },
		"short key": func() error { _, err := trust.OpenAuthority(c.ca.Certificate, sealed, key[:31]); return err },
	} {
		if fails() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestBox decrypts a value only with the key, the cluster, the purpose and the name for which it was encrypted.
func TestBox(t *testing.T) {
	key := trust.NewClusterKey()
	open := func(key []byte, cluster, purpose, name string, sealed []byte) (string, error) {
		box, err := trust.NewBox(key, cluster, purpose)
		if err != nil {
			return "", err
		}
		plain, err := box.Open(name, sealed)
		return string(plain), err
	}
	box, err := trust.NewBox(key, "c", "p")
	if err != nil {
		t.Fatal(err)
	}
	sealed := box.Seal("n", []byte("value"))
	if got, err := open(key, "c", "p", "n", sealed); err != nil || got != "value" {
		t.Errorf("%q, %v", got, err)
	}
	for name, fails := range map[string]func() (string, error){
		"another key":     func() (string, error) { return open(trust.NewClusterKey(), "c", "p", "n", sealed) },
		"another cluster": func() (string, error) { return open(key, "d", "p", "n", sealed) },
		"another purpose": func() (string, error) { return open(key, "c", "q", "n", sealed) },
		"another name":    func() (string, error) { return open(key, "c", "p", "m", sealed) },
		"truncated":       func() (string, error) { return open(key, "c", "p", "n", sealed[:11]) },
		"short key":       func() (string, error) { return open(key[:31], "c", "p", "n", sealed) },
	} {
		if got, err := fails(); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestSign refuses ids that are not ids, and keys of other curves.
func TestSign(t *testing.T) {
	c := newCluster(t)
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"", "x", "../../../../..", "0123456789ABCDEF", "0123456789abcdef0"} {
		if _, err := c.ca.Sign(trust.Identity{Cluster: c.id, Node: node}, &key.PublicKey, time.Now()); err == nil {
			t.Errorf("id %q is accepted", node)
		}
	}
	weak, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := trust.Identity{Cluster: c.id, Node: trust.NewID()}
	if _, err := c.ca.Sign(id, &weak.PublicKey, time.Now()); err == nil {
		t.Error("a key of curve P-224 is accepted")
	}
	request, err := trust.Request(weak)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trust.OpenRequest(request); err == nil {
		t.Error("a request with a key of curve P-224 is accepted")
	}
	if _, err := trust.OpenRequest(requestOfRSA(t)); err == nil || !strings.Contains(err.Error(), "curve P-256") {
		t.Errorf("a request with an RSA key: %v, want one for its kind of key, before its signature is checked", err)
	}
	request, err = trust.Request(key)
	if err != nil {
		t.Fatal(err)
	}
	if public, err := trust.OpenRequest(request); err != nil || !public.Equal(&key.PublicKey) {
		t.Errorf("the request's key is %v, %v", public, err)
	}
	request[len(request)-1] ^= 1
	if _, err := trust.OpenRequest(request); err == nil {
		t.Error("a changed request is accepted")
	}
}

// requestOfRSA returns a certificate request whose signature is wrong.
func requestOfRSA(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	request[len(request)-1] ^= 1
	return request
}

// TestRenewIn computes when certificates are renewed.
func TestRenewIn(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	c := newCluster(t)
	n := c.node()
	parsed, err := x509.ParseCertificate(n.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	issued := parsed.NotBefore.Add(trust.Skew)
	for after, want := range map[time.Duration]time.Duration{0: 8 * time.Hour, time.Hour: 7 * time.Hour,
		30 * time.Hour: 0} {
		if got := trust.RenewIn(n.Certificate, issued.Add(after), 0); got != want {
			t.Errorf("%v after it was issued: renew in %v, want %v", after, got, want)
		}
	}
	if got := trust.RenewIn(n.Certificate, issued, 1); got != 7*time.Hour {
		t.Errorf("with jitter: %v", got)
	}
	if got := trust.RenewIn(n.Certificate, parsed.NotBefore.Add(-time.Hour), 0); got != 0 {
		t.Errorf("a certificate that is not valid yet: %v", got)
	}
	if got := trust.RenewIn([]byte("x"), now, 0); got != 0 {
		t.Errorf("a broken certificate: %v", got)
	}
}

func addresses(texts ...string) (all []netip.AddrPort) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddrPort(text))
	}
	return all
}

// TestToken reads the text of a token, also with line breaks of a terminal, and no other text.
func TestToken(t *testing.T) {
	want := trust.Token{CA: trust.Hash([]byte("ca")), Secret: trust.NewSecret(),
		Nodes: addresses("192.0.2.1:7947", "[2001:db8::1]:1")}
	text := want.String()
	for _, same := range []string{text, " " + text + "\n", text[:40] + "\r\n  " + text[40:]} {
		got, err := trust.ParseToken(same)
		if err != nil || got.CA != want.CA || got.Secret != want.Secret || len(got.Nodes) != 2 ||
			got.Nodes[0] != want.Nodes[0] || got.Nodes[1] != want.Nodes[1] {
			t.Errorf("%q is %v, %v", same, got, err)
		}
	}
	for at := range text {
		for _, c := range []string{"", "x", "7", "A", "\x00"} {
			if c == text[at:at+1] {
				continue
			}
			if _, err := trust.ParseToken(text[:at] + c + text[at+1:]); err == nil {
				t.Fatalf("character %d as %q is accepted", at, c)
			}
		}
	}
	for broken, want := range map[string]string{
		"": "want a text that begins", "fljoin2.abc": "another version", text + text: "incomplete or was changed",
		strings.Repeat("a", 5000):                             "at most",
		trust.Token{}.String():                                "not valid",
		trust.Token{Nodes: addresses("0.0.0.0:1")}.String():   "not valid",
		trust.Token{Nodes: addresses("192.0.2.1:0")}.String(): "not valid",
		trust.Token{Nodes: addresses("1.1.1.1:1", "1.1.1.1:1", "1.1.1.1:1", "1.1.1.1:1", "1.1.1.1:1", "1.1.1.1:1",
			"1.1.1.1:1", "1.1.1.1:1", "1.1.1.1:1")}.String(): "not valid",
	} {
		if _, err := trust.ParseToken(broken); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", broken, err, want)
		}
	}
	hash := trust.HashSecret(want.Secret[:])
	if other := trust.NewSecret(); !trust.SecretMatches(hash, want.Secret[:]) || trust.SecretMatches(hash, other[:]) {
		t.Error("the hash does not identify the secret")
	}
}

// FuzzToken reads any text without a crash. A token that is accepted has one form.
func FuzzToken(f *testing.F) {
	f.Add(trust.Token{Nodes: addresses("192.0.2.1:7947")}.String())
	f.Fuzz(func(t *testing.T, text string) {
		token, err := trust.ParseToken(text)
		if again, failed := trust.ParseToken(token.String()); err == nil &&
			(failed != nil || again.String() != token.String()) {
			t.Errorf("%q is read as %v, %v", text, again, failed)
		}
	})
}

// TestPEM decodes the PEM of a certificate.
func TestPEM(t *testing.T) {
	c := newCluster(t)
	block, rest := pem.Decode([]byte(trust.PEM(c.ca.Certificate)))
	if block == nil || block.Type != "CERTIFICATE" || string(block.Bytes) != string(c.ca.Certificate) || len(rest) > 0 {
		t.Errorf("decoded: %+v, %q", block, rest)
	}
}
