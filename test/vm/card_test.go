package vm

import "testing"

// TestCards hands network cards on the PCI bus to sandboxes that die: those the
// kernel brings back to the first namespace, which only a machine of its own
// can spare.
func TestCards(t *testing.T) {
	m := Machine{Kernel: debian(t), Modules: append([]string{"virtio_pci", "virtio_net"}, networking...),
		Tools: []string{"ip", "sh", "sleep", "sysctl", "nsenter", "grep", "ls", "sed"}, Cards: []string{"virtio-net-pci"}}
	said, err := m.Test(t.Context(), "fairlead/test/vm/testdata/card")
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}
