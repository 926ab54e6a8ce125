package vm

import "testing"

// TestCards moves PCI network cards into sandboxes that end. The kernel returns these cards to the
// first namespace, which only a virtual machine can use for tests.
func TestCards(t *testing.T) {
	t.Parallel()
	m := Machine{Kernel: debian(t), Modules: append([]string{"virtio_pci", "virtio_net"}, networking...),
		Tools: []string{"ip", "sh", "sleep", "sysctl", "nsenter", "grep", "ls", "sed"},
		Cards: []string{"virtio-net-pci"}}
	if o := run(t, m, Task{Package: "fairlead/test/vm/testdata/card"})[0]; o.Err != nil {
		t.Fatalf("%v\n%s", o.Err, o.Said)
	}
}
