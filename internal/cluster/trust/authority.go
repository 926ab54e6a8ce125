// Package trust has the keys and certificates of a cluster: its certificate authority (CA),
// the certificates of nodes, join tokens, and the settings of TLS between nodes. It is pure: it
// neither reads files nor opens connections.
//
// Theory of operation. Each cluster has one CA (ECDSA P-256). Its certificate is public. Its key
// is in the cluster's store, encrypted with the cluster's key, which only nodes have. So each node
// can sign certificates, also its own, and needs no other node to renew it. A certificate names the
// cluster's id and the node's id in a URI. It is valid for a day and renewed after eight hours.
//
//	join token ── hash of the CA's certificate ──► the joining host recognises the cluster
//	           └─ secret ──► the cluster recognises the joining host
package trust

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"
)

// The lives of certificates. Clocks of nodes may differ by Skew.
const (
	NodeLife  = 24 * time.Hour
	RenewAt   = 8 * time.Hour
	Skew      = 10 * time.Minute
	authority = 20 * 365 * 24 * time.Hour
)

// KeySize is the length of a cluster's key in bytes.
const KeySize = 32

// NewClusterKey returns a random key for NewAuthority's Seal.
func NewClusterKey() []byte {
	key := make([]byte, KeySize)
	_, _ = rand.Read(key) // it never fails
	return key
}

// Authority is the CA of a cluster, with its key.
type Authority struct {
	// Certificate is the CA's certificate, DER.
	Certificate []byte
	parsed      *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority returns a new CA for a cluster.
func NewAuthority(cluster string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create the CA's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Fairlead cluster " + cluster},
		NotBefore: now.Add(-Skew), NotAfter: now.Add(authority), IsCA: true, BasicConstraintsValid: true,
		MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create the CA's certificate: %w", err)
	}
	return newAuthority(der, key)
}

func newAuthority(der []byte, key *ecdsa.PrivateKey) (*Authority, error) {
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the CA's certificate: %w", err)
	}
	if !key.PublicKey.Equal(parsed.PublicKey) {
		return nil, errors.New("read the CA's key: it does not belong to the CA's certificate")
	}
	return &Authority{der, parsed, key}, nil
}

// serial returns a random serial number.
func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b)
}

// Seal returns the CA's key, encrypted with the cluster's key (AES-256-GCM) and bound to the CA's
// certificate.
func (a *Authority) Seal(clusterKey []byte) ([]byte, error) {
	plain, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("encrypt the CA's key: %w", err)
	}
	box, err := newAEAD(clusterKey)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	return box.Seal(nonce, nonce, plain, a.Certificate), nil
}

// OpenAuthority returns the CA with this certificate (DER), whose key Seal has encrypted.
func OpenAuthority(certificate, sealed, clusterKey []byte) (*Authority, error) {
	box, err := newAEAD(clusterKey)
	if err != nil {
		return nil, err
	}
	if len(sealed) < box.NonceSize() {
		return nil, errors.New("decrypt the CA's key: it is truncated")
	}
	plain, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], certificate)
	if err != nil {
		return nil, errors.New("decrypt the CA's key: it was changed, or was encrypted with another cluster's key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(plain)
	if err != nil {
		return nil, fmt.Errorf("decrypt the CA's key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("decrypt the CA's key: want an ECDSA key")
	}
	return newAuthority(certificate, key)
}

func newAEAD(clusterKey []byte) (cipher.AEAD, error) {
	if len(clusterKey) != KeySize {
		return nil, fmt.Errorf("read the cluster's key: it has %d bytes: want %d", len(clusterKey), KeySize)
	}
	block, err := aes.NewCipher(clusterKey)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's key: %w", err)
	}
	return cipher.NewGCM(block)
}

// Sign returns a certificate (DER) for a node's public key.
func (a *Authority) Sign(id Identity, public *ecdsa.PublicKey, now time.Time) ([]byte, error) {
	name, err := id.url()
	if err != nil {
		return nil, err
	}
	if public.Curve != elliptic.P256() {
		return nil, fmt.Errorf("sign the certificate of node %s: want a key of curve P-256", id.Node)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: id.Node}, URIs: []*url.URL{name},
		NotBefore: now.Add(-Skew), NotAfter: now.Add(NodeLife), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.parsed, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of node %s: %w", id.Node, err)
	}
	return der, nil
}

// Hash identifies a CA's certificate (DER) in a join token.
func Hash(certificate []byte) [sha256.Size]byte { return sha256.Sum256(certificate) }

// PEM returns a certificate as PEM.
func PEM(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
