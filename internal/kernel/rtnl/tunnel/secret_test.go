package tunnel

import (
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead/internal/kernel/nlutil"
)

const secret = "the hosts of this overlay share!" // 32 bytes

func secretFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "net.key")
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestHostKeys checks that all hosts derive the same keys from both forms of the
// file. The expected key is fixed: with another derivation, hosts of different
// versions could not communicate.
func TestHostKeys(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	raw, encoded := secretFile(t, secret, 0o600),
		secretFile(t, base64.StdEncoding.EncodeToString([]byte(secret))+"\n", 0o400)
	first, err := hostKey(raw, a)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := hostKey(encoded, a); err != nil || same != first {
		t.Errorf("another form of the file gives another key: %v", err)
	}
	if other, err := hostKey(raw, b); err != nil || other == first {
		t.Errorf("two hosts have one key: %v", err)
	}
	if other, err := hostKey(secretFile(t, strings.ToUpper(secret), 0o600), a); err != nil || other == first {
		t.Errorf("two secrets give one key: %v", err)
	}
	if first[0]&7 != 0 || first[31]&0xc0 != 0x40 {
		t.Errorf("the key is not clamped: %x", first[:])
	}
	if got, want := first.PublicKey().String(), "oKJIKU4/ehAZV3rzG+jInxrGsTwHb1D69NqIVRyzMVA="; got != want {
		t.Errorf("the public key is %s, want %s", got, want)
	}
}

func TestSecretFiles(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"none": {"/no/such.key", "create it with `wg genkey`"},
		"group-readable": {secretFile(t, secret, 0o640),
			"mode 0640 allows access for users other than the owner: chmod 600"},
		"short":    {secretFile(t, "x", 0o600), "is not 32 bytes long"},
		"long":     {secretFile(t, strings.Repeat("x", 5000), 0o600), "is not 32 bytes long"},
		"a folder": {t.TempDir(), "allows access for users other than the owner"},
		"not a key": {secretFile(t, base64.StdEncoding.EncodeToString([]byte(secret+"!")), 0o600),
			"is not 32 bytes long"},
	} {
		_, err := hostKey(c.file, netip.MustParseAddr("192.0.2.1"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
		if nlutil.Absent(err) {
			t.Errorf("%s: the error is taken for that of a missing kernel object: %v", name, err)
		}
	}
}
