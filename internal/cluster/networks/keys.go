package networks

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/publisher"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
)

// Each node has a WireGuard key of its own in each encrypted network. The private key is in a file that
// only root can read, and never leaves the host. The public key is a record, from which the other nodes
// derive the peer. If the file is lost, the node gets another key, and replaces its record.

// These suffixes end the names of the files with private keys. The network's name comes before them. The file
// with the next key exists while a key is replaced, and the name of its second link ends with freshSuffix.
const (
	keySuffix   = ".key"
	nextSuffix  = ".next"
	freshSuffix = ".new"
)

func (n *Networks) keyFile(network string) string {
	return filepath.Join(n.cfg.Keys, network+keySuffix)
}

func (n *Networks) nextFile(network string) string {
	return filepath.Join(n.cfg.Keys, network+nextSuffix)
}

// publishKeys makes the node's public keys those of its files. It creates the files that are missing, and
// deletes those of networks that neither the cluster nor the host has.
func (n *Networks) publishKeys(ctx context.Context, s kv.Snapshot, node string) error {
	self, exists := s.Get(record.Key(record.Nodes, node))
	if !exists {
		return nil
	}
	needed := map[string]bool{}
	for _, network := range n.cfg.Host.Networks() {
		needed[network.Name] = network.Origin == model.FromCluster && network.Overlay.Encrypt
	}
	var changes []kv.Change
	var errs []error
	wanted := map[string]bool{}
	var rotations []rotation
	for e := range s.Under(record.Networks) {
		r, err := record.Decode[record.Network](e)
		if err != nil || !r.Spec.Overlay.Encrypt {
			continue // derive reports it
		}
		needed[r.Spec.Name] = true
		key := record.Key(record.Keys, r.Spec.Name, node)
		wanted[key] = true
		have, _ := s.Get(key)
		want, err := n.ownKeys(r.Spec.Name, have)
		if err != nil {
			errs = append(errs, fmt.Errorf("network %s: %w", r.Spec.Name, err))
			continue
		}
		if value := record.Encode(want); !bytes.Equal(have.Value, value) {
			changes = append(changes, kv.Change{Key: key, Value: value})
		} else if want.Next != "" {
			rotations = append(rotations, rotation{network: r.Spec.Name, node: self, key: have, to: want.Next})
		}
	}
	for e := range s.Under(record.Keys) { // networks that the cluster no longer has
		if names := record.Names(record.Keys, e.Key, 2); len(names) == 2 && names[1] == node &&
			!wanted[e.Key] && !needed[names[0]] {
			changes = append(changes, kv.Change{Key: e.Key})
		}
	}
	errs = append(errs, n.deleteKeys(needed))
	if len(changes) > 0 {
		limited, cancel := context.WithTimeout(ctx, publisher.Limit)
		defer cancel()
		t := kv.Txn{If: []kv.Condition{self.Unchanged()}, Then: changes}
		if _, err := n.cfg.Store.Commit(limited, t); err != nil {
			errs = append(errs, fmt.Errorf("publish keys: %w", err))
		}
	}
	for _, r := range rotations {
		errs = append(errs, n.rotate(ctx, s, r))
	}
	return errors.Join(errs...)
}

// deleteKeys deletes the files of networks that are not needed.
func (n *Networks) deleteKeys(needed map[string]bool) error {
	files, err := os.ReadDir(n.cfg.Keys)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		name, isKey := strings.CutSuffix(strings.TrimSuffix(f.Name(), freshSuffix), keySuffix)
		if !isKey {
			name, isKey = strings.CutSuffix(f.Name(), nextSuffix)
		}
		if isKey && !needed[name] {
			err = errors.Join(err, os.Remove(filepath.Join(n.cfg.Keys, f.Name())))
		}
	}
	return err
}

// ownKey returns the public key of the private key in a file, which it creates if it does not exist.
func ownKey(file string) (public string, err error) {
	public, err = publicKey(file)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createKey(file); err == nil {
			public, err = publicKey(file)
		}
	}
	return public, err
}

// publicKey returns the public key of the private key in a file.
func publicKey(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read private key: %w", err)
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return "", fmt.Errorf("read private key %s: want base64: delete the file, and the host gets another key", file)
	}
	private, err := ecdh.X25519().NewPrivateKey(secret)
	if err != nil {
		return "", fmt.Errorf("read private key %s: %w: delete the file, and the host gets another key", file, err)
	}
	return base64.StdEncoding.EncodeToString(private.PublicKey().Bytes()), nil
}

// createKey writes a new private key to a file that only root can read, in the form of `wg genkey`.
func createKey(file string) error {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	secret[0] &= 248         // as the kernel shows it (RFC 7748)
	secret[31] = secret[31]&127 | 64
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(file), ".new-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = fresh.WriteString(base64.StdEncoding.EncodeToString(secret) + "\n")
	err = errors.Join(err, fresh.Sync(), fresh.Close())
	if err == nil {
		err = os.Rename(fresh.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh.Name()))
	}
	return nil
}
