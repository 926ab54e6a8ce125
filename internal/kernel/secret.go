package kernel

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// The secret that the hosts of an overlay share has 32 bytes. A file with more
// than a few is not read to its end.
const (
	secretLen  = 32
	maxKeyFile = 1 << 10
)

// hostKey derives the private key of the host with the address from the
// overlay's secret: HKDF-SHA256 (RFC 5869), clamped as RFC 7748 wants it.
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

// readSecret reads the secret: raw, or in base64 as `wg genkey` writes it.
func readSecret(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		// Not %w: a file that is missing is no object of the kernel's that is gone.
		return nil, fmt.Errorf("%v: make it with `wg genkey`, and give all hosts of the overlay a copy", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("mode %04o lets others than its owner at it: chmod 600 %s", mode, file)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil || len(text) == secretLen {
		return text, err
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != secretLen {
		return nil, fmt.Errorf("it has not %d bytes, neither raw nor in base64: make it with `wg genkey`", secretLen)
	}
	return secret, nil
}
