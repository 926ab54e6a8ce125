package rtnl

import "testing"

// TestPCIParent parses addresses from sysfs paths.
func TestPCIParent(t *testing.T) {
	for path, want := range map[string]string{
		"/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:02.1/net/enp59s0f1v1": "0000:3b:02.1",
		"/sys/devices/pci0000:00/0000:00:10.0/virtio0/net/eth0":             "0000:00:10.0",
		"/sys/devices/virtual/net/lo":                                       "",
	} {
		if got := pciParent(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
