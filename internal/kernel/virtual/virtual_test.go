package virtual

import (
	"net"
	"testing"

	"fairlead/internal/kernel/kerneltest"

	"github.com/cilium/ebpf"
	ebpflink "github.com/cilium/ebpf/link"
)

// TestAttachVerifies removes the fence from a link behind the Handle's back. The next Attach that is due
// restores it.
func TestAttachVerifies(t *testing.T) {
	ns := kerneltest.Netns(t)
	kerneltest.Run(t, ns, "ip", "link", "add", "lan0", "up", "type", "veth", "peer", "name", "lan1")
	h, err := New(ns, "")
	if err != nil {
		t.Fatal(err)
	}
	defer h.End()
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	defer h.Remove()
	on := Link{Name: "lan0"}
	count := func() (programs int) {
		t.Helper()
		err := ns.Do(func() error {
			dev, err := net.InterfaceByName("lan0")
			if err != nil {
				return err
			}
			on.Index = dev.Index
			found, err := ebpflink.QueryPrograms(ebpflink.QueryOptions{Target: dev.Index,
				Attach: ebpf.AttachTCXIngress})
			if err == nil {
				programs = len(found.Programs)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return programs
	}
	if n := count(); n != 0 {
		t.Fatalf("the link has %d programs before Attach", n)
	}
	attach := func(want int) {
		t.Helper()
		if err := h.Attach(on); err != nil {
			t.Fatal(err)
		}
		if n := count(); n != want {
			t.Errorf("the link has %d programs after Attach, want %d", n, want)
		}
	}
	attach(1)
	if err := ns.Do(func() error { return h.fence.Detach(on.Index) }); err != nil {
		t.Fatal(err)
	}
	attach(0) // it is verified later
	h.attached[on.Index] -= attachEvery
	attach(1)
}
