package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Identity is what a certificate says about its owner.
type Identity struct {
	// Cluster and Node are ids, as NewID returns them.
	Cluster, Node string
}

// idSize is the length of an id in bytes; its text has twice as many characters.
const idSize = 8

// NewID returns a random id of a cluster or a node.
func NewID() string {
	b := make([]byte, idSize)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// ValidID reports whether a text has the form of an id.
func ValidID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == idSize && id == strings.ToLower(id)
}

const scheme = "fairlead"

func (id Identity) url() (*url.URL, error) {
	if !ValidID(id.Cluster) || !ValidID(id.Node) {
		return nil, fmt.Errorf("name node %q of cluster %q: want ids of %d hexadecimal digits", id.Node, id.Cluster,
			2*idSize)
	}
	return &url.URL{Scheme: scheme, Host: id.Cluster, Path: "/node/" + id.Node}, nil
}

// IdentityOf returns the identity in a certificate. It does not verify the certificate.
func IdentityOf(c *x509.Certificate) (Identity, error) {
	if len(c.URIs) != 1 || c.URIs[0].Scheme != scheme {
		return Identity{}, errors.New("read the node's certificate: it names no node of a cluster")
	}
	id := Identity{c.URIs[0].Host, strings.TrimPrefix(c.URIs[0].Path, "/node/")}
	if again, err := id.url(); err != nil || again.String() != c.URIs[0].String() {
		return Identity{}, errors.New("read the node's certificate: it names no node of a cluster")
	}
	return id, nil
}

// NewKey returns a new private key for a node.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create the node's key: %w", err)
	}
	return key, nil
}

// Request returns a certificate request (DER), which proves that the sender has the key.
func Request(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate request: %w", err)
	}
	return der, nil
}

// OpenRequest returns the public key of a certificate request whose signature is valid. Names in
// the request are ignored: the CA chooses them.
func OpenRequest(der []byte) (*ecdsa.PublicKey, error) {
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate request: %w", err)
	}
	// Any host can send one. To check the signature of a large RSA key takes seconds.
	public, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, errors.New("read the certificate request: want an ECDSA key of curve P-256")
	}
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("read the certificate request: %w", err)
	}
	return public, nil
}

// KeyHash identifies the public key of a certificate: the SHA-256 hash of its SubjectPublicKeyInfo, hexadecimal.
func KeyHash(c *x509.Certificate) string { return hashKey(c.RawSubjectPublicKeyInfo) }

// HashKey identifies a public key like KeyHash.
func HashKey(public *ecdsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("read the node's key: %w", err)
	}
	return hashKey(der), nil
}

func hashKey(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// exporter is the label of the value that both sides of a TLS connection derive for Prove (RFC 8446, section 7.5).
const exporter = "EXPORTER-fairlead-join"

// Prove returns a signature with a node's key that is valid for one TLS connection only. A certificate request proves
// that its sender had the key once: anyone who has seen it can send it again.
func Prove(key *ecdsa.PrivateKey, s tls.ConnectionState) ([]byte, error) {
	text, err := s.ExportKeyingMaterial(exporter, nil, sha256.Size)
	if err == nil {
		text, err = ecdsa.SignASN1(rand.Reader, key, text)
	}
	if err != nil {
		return nil, fmt.Errorf("prove the node's key: %w", err)
	}
	return text, nil
}

// Proved reports whether the peer of a TLS connection has sent the signature of Prove with a key.
func Proved(public *ecdsa.PublicKey, s *tls.ConnectionState, proof []byte) bool {
	if s == nil {
		return false
	}
	text, err := s.ExportKeyingMaterial(exporter, nil, sha256.Size)
	return err == nil && ecdsa.VerifyASN1(public, text, proof)
}

// RenewIn returns how long after now a certificate (DER) is to be renewed: RenewAt after it was
// issued, and up to an hour earlier, so that nodes do not renew together. jitter is from 0 to 1. A certificate that is
// not valid yet is renewed at once: it was issued while the clock of the host was wrong.
func RenewIn(certificate []byte, now time.Time, jitter float64) time.Duration {
	c, err := x509.ParseCertificate(certificate)
	if err != nil {
		return 0
	}
	if now.Before(c.NotBefore) {
		return 0
	}
	issued := c.NotBefore.Add(Skew)
	return max(0, issued.Add(RenewAt-time.Duration(jitter*float64(time.Hour))).Sub(now))
}
