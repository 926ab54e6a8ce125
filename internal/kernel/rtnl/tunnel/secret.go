package tunnel

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"fairlead/internal/plan"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// The secret that the hosts of an overlay share has secretLen bytes. At most
// maxKeyFile bytes of its file are read.
const (
	secretLen  = 32
	maxKeyFile = 1 << 10
)

// privateKey returns the private key of the link.
func privateKey(w plan.WireGuard) (wgtypes.Key, error) {
	if w.PublicKey == "" {
		return hostKey(w.KeyFile, w.Local)
	}
	secret, err := readSecret(w.KeyFile)
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("read key file %s: %w", w.KeyFile, err)
	}
	key := wgtypes.Key(secret)
	if key.PublicKey().String() != w.PublicKey {
		return key, fmt.Errorf("read key file %s: its key is not the one of %s: the public key must be that of the file",
			w.KeyFile, w.PublicKey)
	}
	return key, nil
}

// publicKey returns the public key of the peer.
func publicKey(p plan.WireGuardPeer) (wgtypes.Key, error) {
	if p.PublicKey != "" {
		return wgtypes.ParseKey(p.PublicKey)
	}
	key, err := hostKey(p.KeyFile, p.Endpoint.Addr())
	return key.PublicKey(), err
}

// hostKey derives the WireGuard private key of the host with the address from the
// overlay's secret: HKDF-SHA256 (RFC 5869), clamped as in RFC 7748.
func hostKey(file string, host netip.Addr) (wgtypes.Key, error) {
	secret, err := readSecret(file)
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("read key file %s: %w", file, err)
	}
	derived, err := hkdf.Key(sha256.New, secret, nil, "fairlead overlay "+host.String(), wgtypes.KeyLen)
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("derive key: %w", err)
	}
	key := wgtypes.Key(derived)
	key[0] &= 248
	key[31] = key[31]&127 | 64
	return key, nil
}

// readSecret reads the secret from a file: 32 raw bytes, or base64 as `wg genkey`
// prints it.
func readSecret(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		// Not %w: callers would take os.ErrNotExist for a missing kernel object.
		return nil, fmt.Errorf("%v: create it with `wg genkey`, and copy it to all hosts of the overlay", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("mode %04o allows access for users other than the owner: chmod 600 %s", mode, file)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil || len(text) == secretLen {
		return text, err
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != secretLen {
		return nil, fmt.Errorf("the secret is not %d bytes long, neither raw nor in base64: create it with `wg genkey`",
			secretLen)
	}
	return secret, nil
}
