package vm

import (
	"slices"
	"strings"
	"testing"
)

// TestOverlay builds overlays on the older kernel, including encrypted ones: only this kernel has
// WireGuard.
func TestOverlay(t *testing.T) {
	t.Parallel()
	m := Machine{Kernel: debian(t), Modules: slices.Concat(networking, []string{"wireguard"}),
		Tools: []string{"bridge", "cat", "grep", "ip", "nft", "sed", "sh", "sort", "ss", "sysctl"}}
	said, err := m.Test(t.Context(), "fairlead/test/overlay",
		"-test.run=^(TestEncrypted|TestKnownSandboxesNeedNoResolution)$")
	if err != nil || !strings.Contains(said, "--- PASS: TestEncrypted/over_IPv4") ||
		!strings.Contains(said, "--- PASS: TestEncrypted/keys_of_hosts") {
		t.Fatalf("%v\n%s", err, said)
	}
}

// TestEncryptedNetwork runs an encrypted network of three daemons that share a real etcd.
func TestEncryptedNetwork(t *testing.T) {
	t.Parallel()
	m := Machine{Kernel: debian(t), Modules: slices.Concat(networking, []string{"wireguard"}),
		Tools: []string{"etcd", "ip", "nft", "sh", "sysctl"}}
	said, err := m.Test(t.Context(), "fairlead/test/cluster", "-test.run=^TestEncryptedNetwork$")
	if err != nil || !strings.Contains(said, " packets of WireGuard\n") {
		t.Fatalf("%v\n%s", err, said)
	}
}
