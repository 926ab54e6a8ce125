package vm

import (
	"slices"
	"strings"
	"testing"
)

// TestOverlay builds overlays on the older kernel, including encrypted ones: only this kernel has
// WireGuard.
func TestOverlay(t *testing.T) {
	o := forNetworks.run(t, slices.Concat(networking, []string{"wireguard"}),
		[]string{"bridge", "cat", "grep", "ip", "nft", "sed", "sh", "sort", "ss", "sysctl"},
		Task{"fairlead/test/overlay", []string{"-test.run=^(TestEncrypted|TestKnownSandboxesNeedNoResolution)$"}})
	if o.Err != nil || !strings.Contains(o.Said, "--- PASS: TestEncrypted/over_IPv4") ||
		!strings.Contains(o.Said, "--- PASS: TestEncrypted/keys_of_hosts") {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}

// TestEncryptedNetwork runs an encrypted network of three daemons that share a real etcd.
func TestEncryptedNetwork(t *testing.T) {
	o := forNetworks.run(t, slices.Concat(networking, []string{"wireguard"}),
		[]string{"etcd", "ip", "nft", "sh", "sysctl"},
		Task{"fairlead/test/cluster", []string{"-test.run=^TestEncryptedNetwork$"}})
	if o.Err != nil || !strings.Contains(o.Said, " packets of WireGuard\n") {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}
