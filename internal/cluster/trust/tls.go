package trust

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Node is a node's certificate with its key, and what it needs to verify others.
type Node struct {
	Identity
	// Certificate and CA are DER.
	Certificate, CA []byte
	Key             *ecdsa.PrivateKey
}

// ErrNotMember is the error of a connection with a node that the cluster does not have, or no longer
// has.
var ErrNotMember = errors.New("the node does not belong to the cluster")

// Server returns the settings of a node's API. current returns the node's newest certificate. A
// client without a certificate is accepted, because a host that joins has none: the API asks for
// PeerOf. The certificates of others must be of this cluster, and member must accept their owners.
func Server(current func() Node, member func(Peer) bool, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true, Time: now,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return current().chain(), nil
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return nil
			}
			_, err := current().verify(s, member, now(), x509.ExtKeyUsageClientAuth)
			return err
		},
	}
}

// Client returns the settings for a connection to the API of the node with this id.
func Client(current func() Node, id string, member func(Peer) bool, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, Time: now, NextProtos: []string{"http/1.1"},
		// VerifyConnection verifies the chain and the node's id. Nodes have no host names.
		InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return current().chain(), nil
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			peer, err := current().verify(s, member, now(), x509.ExtKeyUsageServerAuth)
			if err == nil && peer.Node != id {
				err = fmt.Errorf("verify node %s: node %s answers at its address", id, peer.Node)
			}
			return err
		},
	}
}

// chain returns the certificate with that of the CA, which a host that joins compares with its
// token.
func (n Node) chain() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{n.Certificate, n.CA}, PrivateKey: n.Key}
}

// verify verifies the certificate of a peer, and returns its owner.
func (n Node) verify(s tls.ConnectionState, member func(Peer) bool, now time.Time,
	usage x509.ExtKeyUsage) (Peer, error) {
	id, err := verifyChain(s, n.CA, now, usage)
	if err != nil {
		return Peer{}, err
	}
	peer := Peer{id, KeyHash(s.PeerCertificates[0])}
	switch {
	case id.Cluster != n.Cluster:
		return peer, fmt.Errorf("verify node %s: it is of cluster %s: %w", id.Node, id.Cluster, ErrNotMember)
	case !member(peer):
		return peer, fmt.Errorf("verify node %s: %w, or has another key there", id.Node, ErrNotMember)
	}
	return peer, nil
}

// verifyChain verifies that the CA has signed the peer's certificate.
func verifyChain(s tls.ConnectionState, ca []byte, now time.Time, usage x509.ExtKeyUsage) (Identity, error) {
	if len(s.PeerCertificates) == 0 {
		return Identity{}, errors.New("verify the node: it has no certificate")
	}
	parsed, err := x509.ParseCertificate(ca)
	if err != nil {
		return Identity{}, fmt.Errorf("read the CA's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		return Identity{}, fmt.Errorf("verify the node's certificate: %w", explainTime(err, leaf, now))
	}
	return IdentityOf(leaf)
}

// explainTime adds to the error of a certificate that is not valid at this time what to compare.
func explainTime(err error, leaf *x509.Certificate, now time.Time) error {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		return err
	}
	text := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	return fmt.Errorf("it is valid from %s to %s, and this host's clock says %s: compare the clocks of both hosts",
		text(leaf.NotBefore), text(leaf.NotAfter), text(now))
}

// Pinned returns the settings for a connection to any node of the cluster whose CA's certificate has
// the hash. After the handshake, found returns that certificate and the identity of the node.
func Pinned(hash [sha256.Size]byte, now func() time.Time) (config *tls.Config, found func() ([]byte, Identity)) {
	var ca []byte
	var id Identity
	config = &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, Time: now, NextProtos: []string{"http/1.1"},
		// VerifyConnection verifies the chain up to the CA with the hash.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) (err error) {
			for _, c := range s.PeerCertificates {
				if sum := Hash(c.Raw); c.IsCA && subtle.ConstantTimeCompare(sum[:], hash[:]) == 1 {
					ca = c.Raw
				}
			}
			if ca == nil {
				return errors.New("verify the node: it is not of the cluster of the join token, or someone has " +
					"changed the connection: check the addresses of the nodes")
			}
			id, err = verifyChain(s, ca, now(), x509.ExtKeyUsageServerAuth)
			return err
		},
	}
	return config, func() ([]byte, Identity) { return ca, id }
}

// Peer is the owner of a verified certificate.
type Peer struct {
	Identity
	// KeyHash is that of its public key. Each node can sign certificates in the name of another one, so the
	// identity alone proves only that the peer is or was a node.
	KeyHash string
}

// PeerOf returns the owner of the certificate of a connection's peer. It returns false if the peer has no
// certificate. Server and Client have verified it.
func PeerOf(s *tls.ConnectionState) (Peer, bool) {
	if s == nil || len(s.PeerCertificates) == 0 {
		return Peer{}, false
	}
	id, err := IdentityOf(s.PeerCertificates[0])
	return Peer{id, KeyHash(s.PeerCertificates[0])}, err == nil
}
