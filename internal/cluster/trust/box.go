package trust

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// Box encrypts values in the store that only nodes may read, with AES-256-GCM. Its key is derived from
// the cluster's key (HKDF, SHA-256), one per purpose. Its methods may be called concurrently.
type Box struct {
	aead    cipher.AEAD
	cluster string
}

// NewBox returns the box of a cluster for a purpose.
func NewBox(clusterKey []byte, cluster, purpose string) (*Box, error) {
	if len(clusterKey) != KeySize {
		return nil, fmt.Errorf("read the cluster's key: it has %d bytes: want %d", len(clusterKey), KeySize)
	}
	key, err := hkdf.Key(sha256.New, clusterKey, nil, "fairlead "+purpose, KeySize)
	if err != nil {
		return nil, fmt.Errorf("derive a key from the cluster's key: %w", err)
	}
	aead, err := newAEAD(key)
	if err != nil {
		return nil, err
	}
	return &Box{aead, cluster}, nil
}

// Seal encrypts a value, and binds it to the cluster and to the name of its record.
func (b *Box) Seal(name string, plain []byte) []byte {
	nonce := make([]byte, b.aead.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	return b.aead.Seal(nonce, nonce, plain, b.bound(name))
}

// Open decrypts a value that Seal has encrypted for the same name.
func (b *Box) Open(name string, sealed []byte) ([]byte, error) {
	if len(sealed) < b.aead.NonceSize() {
		return nil, errors.New("decrypt value: it is truncated")
	}
	nonce, rest := sealed[:b.aead.NonceSize()], sealed[b.aead.NonceSize():]
	plain, err := b.aead.Open(nil, nonce, rest, b.bound(name))
	if err != nil {
		return nil, errors.New("decrypt value: it was changed, moved, or encrypted with another cluster's key")
	}
	return plain, nil
}

// bound is what a value belongs to.
func (b *Box) bound(name string) []byte { return []byte(b.cluster + "/" + name) }
